"""Benchmark of start-up: CPU seconds (user and system, the least of some runs) and peak megabytes of short commands.

Commands of different programs take turns, so that all of them see the same machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from measuring import run, say

SAMPLES, VARIANTS = 200, 2_000
FIT = "pca study.bed"
# Arguments of each command, by its name in the table; the result exists, and was made with the default k.
COMMANDS = {
    FIT: "pca study.bed --out new.zarr --quiet",
    "--help": "--help",
    "pca --help": "pca --help",
    "status of a result": "status result.zarr",
    "output exists": "pca study.bed -k 3 --out result.zarr",
    "wrong path": "pca stduy.bed",
}


def prepared(folder: Path, program: str, name: str) -> Path:
    """Return a directory with the data and a result of this program."""
    from streampca.demos.simulate_genotypes import simulate_genotypes

    place = folder / f"startup-{name}"
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    simulate_genotypes(place / "study", SAMPLES, VARIANTS)
    row = run(f"{program} pca study.bed --out result.zarr --quiet", place / "log", folder=place)
    if "failed" in row:
        raise RuntimeError(f"{program}: {row['failed']}")
    return place


def measured(command: str, place: Path) -> dict[str, Any]:
    """Run a command once in a directory; an error of the command is what some are for."""
    if (place / "new.zarr").exists():
        shutil.rmtree(place / "new.zarr")
    return run(command, place / "log", may_fail=True, folder=place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--other", action="append", default=[], metavar="NAME=COMMAND")
    given = parser.parse_args()
    programs = {"streampca": "streampca", **dict(other.split("=", 1) for other in given.other)}
    places = {name: prepared(given.folder.resolve(), program, name) for name, program in programs.items()}
    tasks = {
        (shown, name): (f"{programs[name]} {arguments}", places[name])
        for shown, arguments in COMMANDS.items()
        for name in programs
    }
    if shutil.which("plink2"):
        tasks[FIT, "plink2"] = ("plink2 --bfile study --pca 10 --threads 2 --out plink", places["streampca"])
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {task: [] for task in tasks}
    for _ in range(given.runs):
        for task, (command, place) in tasks.items():
            rows[task].append(measured(command, place))
    say("| command | program | CPU s | peak MB |\n| --- | --- | ---: | ---: |")
    found = []
    for (shown, name), runs in rows.items():
        row = {"command": shown, "program": name, "cpu": min(r["cpu"] for r in runs),
               "megabytes": max(r["megabytes"] for r in runs)}  # fmt: skip
        found.append(row)
        say(f"| `{shown}` | {name} | {row['cpu']:.2f} | {row['megabytes']:.0f} |")
    (given.folder / "startup.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""Check the time model of plans: predicted and measured seconds of a sweep and of a run, and bytes that workers send.

For each file, k and engine, a configuration is planned and then run, as whole commands. A sweep is the median of those
after the first, without what the driver does between two. A run is its fit, from the first sweep to the store; it is
predicted for as many sweeps as it then took, and the number that the plan had guessed stands beside. The least of
several runs counts. What other programs took of the machine meanwhile stands beside, too, and is taken off for the
ratio "alone": a plan is for a machine that does nothing else. Then the bytes that workers of a cluster on this machine
really wrote to each other and to the driver are set beside the bound. Results go to FOLDER/plan.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from genotypes import simulated
from measuring import say

KS = (10, 20)
FILES = ((5_000, 100_000), (20_000, 50_000))
SMALL_FILES = ((1_000, 10_000), (2_000, 20_000))
ENGINES: dict[str, dict[str, Any]] = {
    "threads": {"kind": "threads", "threads": 2},
    "processes": {"kind": "processes", "workers": 2, "threads": 1, "dashboard": False},
}
MEMORY = "2GB"
WITHIN = (0.7, 1.3)


def command(*arguments: str) -> str:
    """Run streampca; returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "streampca", *arguments], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def busy_seconds() -> float:
    """Seconds that all processors of the machine worked so far, or were taken from it."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    times = dict(zip(names, map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]), strict=False))
    return sum(value for name, value in times.items() if name not in ("idle", "iowait")) / os.sysconf("SC_CLK_TCK")


def watched(*arguments: str) -> float:
    """Run streampca; returns the share of the machine that others took meanwhile."""
    began, before = time.monotonic(), busy_seconds()
    process = subprocess.Popen([sys.executable, "-m", "streampca", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"streampca {' '.join(arguments)} failed")
    others = busy_seconds() - before - used.ru_utime - used.ru_stime
    return min(1.0, max(0.0, others / (time.monotonic() - began) / (os.cpu_count() or 1)))


def worker(*arguments: object) -> Any:
    """Run a worker below in a process of its own; returns what it prints as JSON on its last line."""
    call = [sys.executable, __file__, "--worker", *map(str, arguments)]
    done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def sent_by(client: Any) -> int:
    """Return the bytes that the workers of a client have written so far, to each other and to the driver."""

    def written(dask_worker: Any) -> int:
        return sum(entry["compressed"] for entry in dask_worker.transfer_outgoing_log)

    return int(sum(client.run(written).values()))


def work_network(prefix: str, k: str, workers: str) -> None:
    """Count the bytes of some sweeps on a cluster of this machine, and their bound."""
    from streampca.models.pca.fit import plan_pca
    from streampca.models.pca.options import PCAOptions
    from streampca.run.config import build
    from streampca.run.costs.measure import statistic_of
    from streampca.run.costs.predict import Sizes
    from streampca.run.engine import engine
    from streampca.solvers.base import first_sweep
    from streampca.sources import open_genotypes
    from streampca.sweep.sweep import Sweeps

    asked = build(config(Path(prefix), int(k), "processes", Path("unused.zarr")))
    settings = asked.engine.changed(**{"workers": int(workers)})
    data = open_genotypes(f"{prefix}.bed")
    plan = plan_pca(data, PCAOptions(n_components=int(k)), memory=MEMORY)
    assert plan.timed is not None
    statistic = statistic_of(plan.solver, data.shape[1 - plan.cut.axis], plan.dtype)
    assert statistic is not None
    sizes = Sizes.of(plan, data, statistic)
    with engine(settings, 1, 2_000_000_000) as client:
        client.wait_for_workers(int(workers))
        sweeps = Sweeps(plan.matrix(data, plan.timed.missing, plan.timed.scale))
        first_sweep(sweeps, statistic, "first")
        before = sent_by(client)
        sweeps.run(statistic, "counted")
        sent = sent_by(client) - before
    bound = sizes.network(plan.cut.partitions, int(workers))
    # The first copy of what is broadcast comes from the driver, not from a worker.
    most = bound["most"] - sizes.shared
    likely = bound["merging_likely"] + bound["home"] + bound["broadcast"] - sizes.shared
    print(json.dumps({"sent": sent, "likely": likely, "bound": most, "partitions": len(plan.cut.partitions)}))


WORKERS = {"network": work_network}


def config(prefix: Path, k: int, engine: str, out: Path) -> dict[str, Any]:
    return {
        "data": {"path": f"{prefix}.bed"},
        "model": {"kind": "pca", "n_components": k},
        "engine": ENGINES[engine] | {"memory_limit": MEMORY},
        "output": {"path": str(out), "overwrite": True},
    }


def predict(path: Path) -> dict[str, Any]:
    """Return the seconds that the plan gives for each kind of sweep."""
    plan = json.loads(command("run", str(path), "--plan", "--json"))
    kinds = plan["sweep_seconds"]
    return {
        "solver": plan["name"],
        "sweeps": plan["sweeps"],
        "sweep": kinds["later"]["seconds"] - kinds["later"]["driver"],
        "kinds": {name: kind["seconds"] for name, kind in kinds.items()},
        "warm_sweeps": plan["warm_sweeps"],
        "loading": plan["measured"]["loading"],
    }


def whole(predicted: dict[str, Any], sweeps: int) -> float:
    """Return the seconds of a run with so many sweeps."""
    kinds = predicted["kinds"]
    rest = sweeps - 1 - ("last" in kinds)
    fit = kinds["first"] + rest * kinds["later"] + kinds.get("last", 0.0)
    return predicted["loading"] + predicted["warm_sweeps"] * kinds.get("warm", 0.0) + fit


def measure(path: Path, out: Path) -> dict[str, Any]:
    """Run it; returns the seconds of a sweep and of the fit."""
    others = watched("run", str(path), "--quiet")
    attributes = json.loads((out / "zarr.json").read_text())["attributes"]
    sweeps = json.loads(attributes["sweep_seconds"])
    return {
        "sweeps": len(sweeps),
        # Where there is one sweep and one for the other side, the first is what is meant.
        "sweep": statistics.median(sweeps[1:]) if attributes["solver"] == "krylov" else sweeps[0],
        "fit": json.loads(attributes["run"])["phase_seconds"]["fitting"],
        "others": others,
    }


def compare(folder: Path, prefix: Path, k: int, engine: str, repeat: int) -> dict[str, Any]:
    """Predict and measure by turns, so that both see the same machine; the least of each counts."""
    out, path = folder / "plan.pca.zarr", folder / "plan.yaml"
    path.write_text(json.dumps(config(prefix, k, engine, out)))
    # Of a benchmark that was stopped.
    shutil.rmtree(f"{out}.unfinished", ignore_errors=True)
    predicted, measured = [], []
    for _ in range(repeat):
        predicted.append(predict(path))
        measured.append(measure(path, out))
    best = min(measured, key=lambda m: m["fit"] * (1 - m["others"]))
    row: dict[str, Any] = {
        "solver": predicted[0]["solver"],
        "sweeps": best["sweeps"],
        "sweeps_planned": predicted[0]["sweeps"],
        "others": best["others"],
        "sweep": {"predicted": statistics.median(p["sweep"] for p in predicted), "measured": best["sweep"]},
        "run": {"predicted": statistics.median(whole(p, best["sweeps"]) for p in predicted), "measured": best["fit"]},
    }
    for name in ("sweep", "run"):
        row[name]["ratio"] = row[name]["predicted"] / row[name]["measured"]
        row[name]["alone"] = row[name]["ratio"] / (1 - best["others"])
    return row


def times(folder: Path, files: tuple[tuple[int, int], ...], repeat: int) -> list[dict[str, Any]]:
    say(f"{'samples':>8}{'variants':>9}{'k':>4}  {'engine':<10}{'solver':<8}"
        + "".join(f"{name:>9}{'predicted':>10}{'ratio':>7}{'alone':>7}" for name in ("sweep s", "run s"))
        + f"{'sweeps':>9}{'others':>8}")  # fmt: skip
    rows = []
    for n, m in files:
        prefix = simulated(folder, n, m)
        for k in KS:
            for engine in ENGINES:
                row = compare(folder, prefix, k, engine, repeat)
                rows.append({"n": n, "m": m, "k": k, "engine": engine, **row})
                cells = "".join(
                    f"{row[name]['measured']:9.2f}{row[name]['predicted']:10.2f}{row[name]['ratio']:7.2f}"
                    f"{row[name]['alone']:7.2f}"
                    for name in ("sweep", "run")
                )
                counts = f"{row['sweeps']} of {row['sweeps_planned']}"
                say(f"{n:>8,}{m:>9,}{k:>4}  {engine:<10}{row['solver']:<8}{cells}{counts:>9}{row['others']:8.0%}")
    for ratio in ("ratio", "alone"):
        inside = [WITHIN[0] <= row[name][ratio] <= WITHIN[1] for row in rows for name in ("sweep", "run")]
        say(f"{ratio}: {sum(inside)} of {len(inside)} are within {WITHIN[0]} and {WITHIN[1]}")
    return rows


def network(folder: Path, files: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    titles = f"{'samples':>8}{'variants':>9}{'k':>4}{'workers':>8}{'partitions':>11}"
    say(titles + f"{'MB sent':>9}{'likely':>8}{'at most':>9}")
    rows = []
    for n, m in files:
        prefix = simulated(folder, n, m)
        for workers in (2, 4):
            row = worker("network", prefix, KS[-1], workers)
            rows.append({"n": n, "m": m, "k": KS[-1], "workers": workers, **row})
            sent, likely, bound = (row[key] / 1e6 for key in ("sent", "likely", "bound"))
            say(f"{n:>8,}{m:>9,}{KS[-1]:>4}{workers:>8}{row['partitions']:>11}{sent:9.1f}{likely:8.1f}{bound:9.1f}")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--small", action="store_true", help="small files, to try the script")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="time,network")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        WORKERS[arguments.worker[0]](*arguments.worker[1:])
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    files = SMALL_FILES if arguments.small else FILES
    report = arguments.folder / "plan.json"
    content = json.loads(report.read_text()) if report.exists() else {}
    if "time" in arguments.only:
        content["time"] = times(arguments.folder, files, arguments.repeat)
    if "network" in arguments.only:
        content["network"] = network(arguments.folder, files)
    report.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()

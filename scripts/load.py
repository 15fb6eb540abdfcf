"""Load: repeated fits, many partitions, long axes, deep groups, runs at the same time. Prints a Markdown table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

import dask.array
import numpy as np
import psutil
import zarr

from streampca import PCA, PPCA, KernelPCA, load
from streampca.cli import cli

# No growth: the least resident size of the last quarter of the rounds is at most so much above that of the second, no
# more files are there, and descriptors and threads grew by less than one every other round in between: pools of the
# libraries grow to their bounds when they happen to be busy.
GROWTH_BYTES = 16 << 20
LIMIT = "1500MB"
AT_ONCE = 8


@dataclass(frozen=True)
class Row:
    """One line of the table; peak and limit in MB."""

    case: str
    size: str
    seconds: float
    peak: float
    outcome: str
    limit: float | None = None
    growth: str = ""

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"{self.limit:.0f}"
        cells = (self.case, self.size, f"{self.seconds:.1f}", f"{self.peak:.0f}", limit, self.outcome, self.growth)
        return f"| {' | '.join(cells)} |"

    @property
    def well(self) -> bool:
        return not self.outcome.startswith("FAILED") and (self.limit is None or self.peak <= self.limit)


@dataclass(frozen=True)
class Ended:
    """What became of a command."""

    code: int
    seconds: float
    peak: float
    said: str

    @property
    def outcome(self) -> str:
        return "done" if self.code == 0 else f"FAILED ({self.code}): {self.said[-160:]}"


# Runs a command, and writes the peak of its own process; what the system counts for a child begins with its parent's.
PEAK = """
import sys
from pathlib import Path
from streampca.cli import main

peak = Path(sys.argv.pop(1))
try:
    main()
finally:
    peak.write_text(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


class Started:
    """A command that runs."""

    def __init__(self, *arguments: object):
        self._began = time.monotonic()
        descriptor, name = tempfile.mkstemp()
        os.close(descriptor)
        self._peak = Path(name)
        command = [sys.executable, "-c", PEAK, name, *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def ended(self) -> Ended:
        """Wait for it."""
        said = self._process.communicate()[1].strip()
        peak = int(self._peak.read_text() or 0) * 1024 / 1e6
        self._peak.unlink()
        return Ended(self._process.returncode, time.monotonic() - self._began, peak, said)


def command(*arguments: object) -> Ended:
    return Started(*arguments).ended()


def row_of(case: str, size: str, done: Ended, limited: bool = False) -> Row:
    return Row(case, size, done.seconds, done.peak, done.outcome, 1500.0 if limited else None)


def write(path: Path, x: np.ndarray, **options: object) -> Path:
    array = zarr.create_array(path, shape=x.shape, dtype=x.dtype, **options)  # type: ignore[arg-type]
    array[...] = x
    return path


def normal(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape, np.float32) * np.linspace(3, 1, shape[1], dtype=np.float32)


# ---------------------------------------------------------------- the same again and again


def soaked(case: str, rounds: int, steps: list[Callable[[], object]], folder: Path) -> Row:
    """Take some steps in turn, again and again, and compare what the process holds late with what it held early."""
    this = psutil.Process()
    sampled: list[tuple[int, int, int, int]] = []
    began = time.monotonic()
    for i in range(rounds):
        steps[i % len(steps)]()
        files = sum(len(names) + len(folders) for _, folders, names in os.walk(folder))
        sampled.append((this.memory_info().rss, this.num_fds(), this.num_threads(), files))
    counts = np.array(sampled)
    quarter = max(1, rounds // 4)
    early, late = counts[quarter : 2 * quarter].min(axis=0), counts[-quarter:].min(axis=0)
    grown = late - early
    still = grown[0] <= GROWTH_BYTES and (grown[1:3] < rounds // 4).all() and grown[3] <= 0
    growth = f"{grown[0] / 1e6:+.1f} MB, {grown[1]:+d} descriptors, {grown[2]:+d} threads, {grown[3]:+d} files"
    seconds, peak = time.monotonic() - began, counts[:, 0].max() / 1e6
    return Row(case, f"{rounds} times", seconds, peak, "no growth" if still else "FAILED: it grows", growth=growth)


def soak(folder: Path, quick: bool) -> Iterator[Row]:
    x = normal(400 if quick else 4000, 40)
    store = write(folder / "soak.zarr", x, chunks=(200, 40))
    fits = [partial(PCA(3, solver=solver).fit, store) for solver in ("covariance", "krylov")]
    yield soaked("PCA of a store", 40 if quick else 200, fits, folder)
    small = x[:200].astype(np.float64)
    fits = [partial(model.fit, small) for model in (PPCA(2), KernelPCA(2, n_landmarks=150))]
    yield soaked("PPCA, KernelPCA in turn", 40 if quick else 60, fits, folder)
    if quick:
        return
    calls = folder / "calls.bed"
    simulate_bed(calls, 200, 2000)
    yield soaked("PCA of genotypes", 60, [partial(PCA(3).fit, calls)], folder)
    out = folder / "run.pca.zarr"
    asked = {
        "data": {"path": str(store)}, "model": {"kind": "pca", "n_components": 3, "solver": "krylov"},
        "output": {"path": str(out), "overwrite": True}, "engine": {"checkpoint_minutes": 1e-6},
    }  # fmt: skip
    config = folder / "run.yaml"
    # JSON is YAML.
    config.write_text(json.dumps(asked))
    run = partial(cli, ["run", str(config), "--quiet"], standalone_mode=False)
    with redirect_stdout(StringIO()):
        row = soaked("run with checkpoints", 32, [run], folder)
    yield row


def simulate_bed(path: Path, n: int, m: int) -> None:
    """Write random genotypes without missing calls as .bed, .bim and .fam."""
    codes = np.random.default_rng(0).choice(np.array([0, 2, 3], np.uint8), (m, -(-n // 4), 4))
    packed = (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2, dtype=np.uint8)
    path.write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
    path.with_suffix(".bim").write_text("".join(f"1 rs{j} 0 {j + 1} A G\n" for j in range(m)))
    path.with_suffix(".fam").write_text("".join(f"f{i} i{i} 0 0 0 -9\n" for i in range(n)))


# ---------------------------------------------------------------- many small parts


def tiny_chunks(path: Path, n: int, d: int) -> Path:
    """Write a store of n chunks of one sample each, file by file: the library would take minutes."""
    options = {"compressors": None, "chunk_key_encoding": {"name": "v2", "separator": "."}}
    zarr.create_array(path, shape=(n, d), dtype="f4", chunks=(1, d), **options)  # type: ignore[arg-type]
    for i, row in enumerate(normal(n, d)):
        (path / f"{i}.0").write_bytes(row.tobytes())
    return path


def partitions(folder: Path, quick: bool) -> Iterator[Row]:
    n = 500 if quick else 100_000
    store = tiny_chunks(folder / "tiny.zarr", n, 250)
    out = folder / "tiny.pca.zarr"
    done = command("pca", store, "-k", 3, "--out", out, "--memory", LIMIT, "--quiet")
    yield row_of("store of 1 kB chunks", f"{n} chunks", done, limited=True)
    blocks = 600 if quick else 20_000
    for each in (1, 2):
        x = dask.array.random.default_rng(0).standard_normal((blocks * each, 30), chunks=(1, 30))
        began = time.monotonic()
        steps: list[int] = []
        PCA(3, solver="covariance", progress=lambda step, steps=steps: steps.append(step.total)).fit(x)
        peak = psutil.Process().memory_info().rss / 1e6
        yield Row("Dask array of tiny blocks", f"{blocks * each} blocks", time.monotonic() - began, peak,
                  f"{steps[0]} partitions")  # fmt: skip


# ---------------------------------------------------------------- long axes


def labelled(path: Path, n: int, d: int) -> Path:
    """Write a group of an array with the names of its samples and features beside it."""
    group = zarr.create_group(path)
    chunks = (min(n, 200_000), min(d, 200_000))
    array = group.create_array("x", shape=(n, d), dtype="f4", chunks=chunks, dimension_names=("sample", "feature"))
    array[...] = normal(n, d)
    for name, size in (("sample", n), ("feature", d)):
        labels = [f"{name[0]}{i}" for i in range(size)]
        beside = group.create_array(name, shape=(size,), dtype="string", chunks=(200_000,), dimension_names=(name,))
        beside[...] = np.array(labels)
    return path


def shapes(folder: Path, quick: bool) -> Iterator[Row]:
    long = 20_000 if quick else 1_000_000
    sizes = [(long, 20), (20, long)] if quick else [(long, 20), (20, long), (10_000_000, 3)]
    for n, d in sizes:
        name, out = f"{n} x {d}", folder / f"{n}.pca.zarr"
        store = labelled(folder / f"{n}.zarr", n, d)
        k = min(n, d)
        done = command("pca", f"{store}/x", "-k", k, "--out", out, "--memory", LIMIT, "--quiet")
        yield row_of("pca, all components, labels", name, done, limited=True)
        if done.code:
            continue
        for what in (("info", out), ("report", out, "--out", folder / f"{n}.html"),
                     ("export", out, "--format", "tsv", "--out", folder / f"{n}")):  # fmt: skip
            yield row_of(str(what[0]), name, command(*what))


# ---------------------------------------------------------------- groups


def groups(folder: Path, quick: bool) -> Iterator[Row]:
    depth, count = (40, 50) if quick else (200, 2000)
    x = normal(50, 8)
    deep = folder.joinpath("deep.zarr", *["g"] * depth)
    zarr.create_group(folder / "deep.zarr")
    write(deep / "x", x)
    out = folder / "deep.pca.zarr"
    yield row_of("array deep in groups", f"{depth} deep", command("pca", deep / "x", "-k", 2, "--out", out, "--quiet"))
    many = zarr.create_group(folder / "many.zarr")
    for i in range(count):
        many.create_array(f"x{i}", shape=x.shape, dtype=x.dtype, chunks=x.shape)[...] = x
    path = folder / "many.zarr"
    done = command("pca", f"{path}/x7", "-k", 2, "--out", folder / "many.pca.zarr", "--quiet")
    yield row_of("one of many arrays", f"{count} arrays", done)
    refused = command("pca", path, "--quiet")
    said = "refused in one line" if refused.code == 2 and refused.said.count("\n") == 0 else refused.outcome
    yield Row("the group of many arrays", f"{count} arrays", refused.seconds, refused.peak, said)
    name = "n" * 240
    write(folder / "long.zarr" / name, x)
    out = folder / "long.pca.zarr"
    yield row_of("long name", "240 characters", command("pca", folder / "long.zarr" / name, "-k", 2, "--out", out))


# ---------------------------------------------------------------- at the same time


def concurrent(folder: Path, quick: bool) -> Iterator[Row]:
    store = write(folder / "shared.zarr", normal(2000 if quick else 100_000, 60), chunks=(1000, 60))
    at_once = 3 if quick else AT_ONCE

    def together(outputs: list[Path], *options: str) -> tuple[list[Ended], float]:
        began = time.monotonic()
        running = [Started("pca", store, "-k", 5, "--out", out, "--threads", 1, *options) for out in outputs]
        return [process.ended() for process in running], time.monotonic() - began

    outputs = [folder / f"apart{i}.pca.zarr" for i in range(at_once)]
    all_done, seconds = together(outputs, "--quiet")
    bits = {load(out)["components"].values.tobytes() for out in outputs if out.exists()}
    outcome = "all done, same bits" if len(bits) == 1 and not any(e.code for e in all_done) else "FAILED: not all alike"
    peak = max(e.peak for e in all_done)
    yield Row("into outputs of their own", f"{at_once} processes", seconds, peak, outcome)

    out = folder / "same.pca.zarr"
    all_done, seconds = together([out] * at_once, "--quiet")
    won = sum(e.code == 0 for e in all_done)
    refused = [e.said for e in all_done if e.code == 2 and e.said.count("\n") == 0]
    whole = load(out)["components"].values.tobytes() in bits
    left = [path.name for path in folder.glob("same*") if path != out]
    well = won == 1 and len(refused) == at_once - 1 and whole and not left
    outcome = f"one won, {len(refused)} refused in one line, the result whole"
    said = "" if well else f"FAILED: {won} won, {refused}, whole: {whole}, left: {left}"
    yield Row("into the same output", f"{at_once} processes", seconds, max(e.peak for e in all_done), said or outcome)

    yield reading_while_written(folder, store, out, 1 if quick else 4)


def reading_while_written(folder: Path, store: Path, out: Path, times: int) -> Row:
    """Export and report a result that is overwritten meanwhile: each gets a whole one, or says that there is none."""
    stop, wrote = threading.Event(), []

    def overwrite() -> None:
        while not stop.is_set():
            wrote.append(command("pca", store, "-k", 5, "--out", out, "--overwrite", "--threads", 1, "--quiet"))

    began = time.monotonic()
    writer = threading.Thread(target=overwrite)
    writer.start()
    read = []
    for i in range(times):
        read.append(command("report", out, "--out", folder / f"page{i}.html"))
        read.append(command("export", out, "--format", "tsv", "--out", folder / f"text{i}"))
    stop.set()
    writer.join()
    bad = [e for e in [*read, *wrote] if e.code not in (0, 2) or e.said.count("\n") > 0]
    whole = sum(e.code == 0 for e in read)
    outcome = f"{whole} of {len(read)} reads whole, the others refused in one line, {len(wrote)} writes"
    if bad or any(e.code for e in wrote):
        outcome = f"FAILED: {[e.said[-200:] for e in [*bad, *wrote] if e.code]}"
    peak = max(e.peak for e in read)
    return Row("report and export while overwritten", f"{len(read)} reads", time.monotonic() - began, peak, outcome)


CASES = {"soak": soak, "partitions": partitions, "shapes": shapes, "groups": groups, "concurrent": concurrent}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", default=",".join(CASES), help=f"some of {','.join(CASES)}")
    parser.add_argument("--folder", help="where to write [a temporary folder]")
    asked = parser.parse_args()
    unknown = set(asked.only.split(",")) - set(CASES)
    if unknown:
        parser.error(f"--only takes {','.join(CASES)}, not {','.join(sorted(unknown))}")
    well = True
    print("| case | size | seconds | peak MB | limit MB | outcome | growth |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in asked.only.split(","):
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            # Temporary files of the library are then counted, too.
            tempfile.tempdir = folder
            for row in CASES[name](Path(folder), asked.quick):
                print(row, flush=True)
                well &= row.well
        tempfile.tempdir = None
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())

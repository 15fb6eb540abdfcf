"""Peak resident size of whole commands against --memory. Prints a Markdown table."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np
import xarray
import zarr
from PIL import Image

from streampca.demos.simulate_genotypes import simulate_genotypes

# Limits relative to the minimum that a command names.
FACTORS = (1.05, 1.3, 2.0)
SECONDS = 900
# Reports the peak resident size of the process, which a parent cannot see: ru_maxrss of a child includes its parent.
COMMAND = """
import atexit, sys
from pathlib import Path
peak = Path(sys.argv[1])
def report():
    peak.write_text(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
atexit.register(report)
"""
SHELL = COMMAND + 'from streampca.cli import main; sys.argv = ["streampca", *sys.argv[2:]]; main()'
# In Python the limit is that of what streampca adds to the process.
PYTHON = """
import re, resource, sys
import dask, dask.array, numpy as np, xarray, zarr
import streampca
from pathlib import Path
peak, graph, memory = sys.argv[1:]
def size(key):
    return int(Path("/proc/self/status").read_text().partition(key)[2].split()[0])
X = eval(graph)
streampca.PCA(2).fit(np.random.default_rng(0).normal(size=(50, 5)))
Path("/proc/self/clear_refs").write_text("5")
before = size("VmRSS:")
try:
    streampca.PCA(10, memory_limit=memory).fit(X)
except streampca.StreamPCAError as error:
    sys.exit(f"streampca: {error}")
Path(peak).write_text(str(max(0, size("VmHWM:") - before)))
"""


@dataclass(frozen=True)
class Case:
    """A command, without --memory and --out; `{}` in its words is the folder of the data."""

    name: str
    words: str
    out: str = "out.zarr"
    python: bool = False


@dataclass
class Outcome:
    """What a command did: its peak in bytes if it ran, or what it printed."""

    code: int
    peak: int
    printed: str
    seconds: float


@dataclass
class Row:
    """One line of the table, in MB."""

    case: Case
    minimum: float
    peaks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        verdict = "; ".join(self.failures) or "kept"
        cells = (self.case.name, f"{self.minimum:.0f}", *self.peaks, f"{self.seconds:.0f}", verdict)
        return f"| {' | '.join(cells)} |"


# ---------------------------------------------------------------------------------------------------------------- data


class Data:
    """Data sets, each made when a case first needs it; a small set is a quarter of the size."""

    def __init__(self, folder: Path, small: bool):
        self.folder = folder
        self.divisor = 4 if small else 1
        self.makers: dict[str, Callable[[Path], None]] = {
            "tall.npy": lambda path: self.npy(path, 400_000, 300, "f4"),
            "tall64.npy": lambda path: self.npy(path, 200_000, 300, "f8"),
            "pixels.npy": lambda path: self.npy(path, 60_000, 784, "u1"),
            "narrow.npy": lambda path: self.npy(path, 2_000_000, 12, "f4"),
            "wide.npy": lambda path: self.npy(path, 1_000, 80_000, "f4"),
            "square.npy": lambda path: self.npy(path, 10_000, 10_000, "f4"),
            "points.npy": lambda path: self.npy(path, 200_000, 40, "f4"),
            "new.npy": lambda path: self.npy(path, 200_000, 300, "f4"),
            "missing.npy": lambda path: self.npy(path, 200_000, 100, "f4", missing=0.05),
            "widemissing.npy": lambda path: self.npy(path, 2_000, 30_000, "f4", missing=0.05),
            "tall.zarr": lambda path: self.zarr(path, 400_000, 300, (5_000, 300)),
            "chunks.zarr": lambda path: self.zarr(path, 400_000, 300, (20_000, 100)),
            "wide.zarr": lambda path: self.zarr(path, 1_000, 80_000, (1_000, 2_000)),
            "shards.zarr": lambda path: self.zarr(path, 400_000, 300, (1_000, 300), shards=(20_000, 300)),
            "format2.zarr": lambda path: self.zarr(path, 400_000, 300, (5_000, 300), zarr_format=2),
            "group.zarr": self.group,
            "gzip.nc": lambda path: self.field(path, {"chunks": (50, 60, 90), "compression": "gzip"}),
            "rows.nc": lambda path: self.field(path, {"chunks": (1, 120, 180), "compression": "gzip"}),
            "contiguous.nc": lambda path: self.field(path, {}),
            "study.bed": lambda path: self.genotypes(path, 5_000, 80_000),
            "many.bed": lambda path: self.genotypes(path, 40_000, 8_000),
            "study.pgen": self.pgen,
            "targets.tsv": lambda path: self.table(path, 400_000),
            "widetargets.tsv": lambda path: self.table(path, 1_000),
            "images": self.images,
        }

    def need(self, name: str) -> Path:
        """Make a data set unless it exists; return its path."""
        path = self.folder / name
        if not path.exists():
            self.makers[name](path)
        return path

    def rows(self, n: int, d: int, missing: float = 0.0) -> Iterator[np.ndarray]:
        """Yield blocks of rows with a falling spectrum of 40 components and noise."""
        rng = np.random.default_rng(7)
        loadings = rng.normal(size=(min(40, d), d)) * np.geomspace(3, 0.3, min(40, d))[:, None]
        for start in range(0, n, 2_000):
            count = min(2_000, n - start)
            block = rng.normal(size=(count, len(loadings))) @ loadings + rng.normal(size=(count, d))
            if missing:
                block[rng.random(block.shape) < missing] = np.nan
            yield block

    def npy(self, path: Path, n: int, d: int, dtype: str, missing: float = 0.0) -> None:
        n = n // self.divisor
        array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(n, d))
        start = 0
        for block in self.rows(n, d, missing):
            array[start : start + len(block)] = np.clip(block * 9 + 128, 0, 255) if dtype == "u1" else block
            start += len(block)

    def zarr(self, path: Path, n: int, d: int, chunks: tuple[int, int], **more: object) -> None:
        n = n // self.divisor
        array = zarr.create_array(path, shape=(n, d), chunks=(min(n, chunks[0]), chunks[1]), dtype="f4", **more)
        start = 0
        step = max(chunks[0], (more.get("shards") or (0,))[0])
        waiting: list[np.ndarray] = []
        for block in self.rows(n, d):
            waiting.append(block.astype("f4"))
            joined = sum(map(len, waiting))
            if joined >= step or start + joined == n:
                array[start : start + joined] = np.concatenate(waiting)
                start, waiting = start + joined, []

    def group(self, path: Path) -> None:
        n = 200_000 // self.divisor
        values = np.concatenate([block.astype("f4") for block in self.rows(n, 300)])
        names = [f"gene-{i}" for i in range(300)]
        data = xarray.Dataset({"X": (("cell", "gene"), values)}, {"gene": names, "cell": [f"c{i}" for i in range(n)]})
        data.chunk(cell=5_000).to_zarr(path, zarr_format=3, consolidated=False)

    def field(self, path: Path, storage: dict[str, object]) -> None:
        times = 3_000 // self.divisor
        with h5py.File(path, "w") as file:
            sizes = {"time": times, "lat": 120, "lon": 180}
            for name, size in sizes.items():
                file[name] = np.linspace(-89 if name == "lat" else 0, 89, size)
                file[name].make_scale(name)
            array = file.create_dataset("sst", tuple(sizes.values()), "f4", **storage)
            for axis, name in enumerate(sizes):
                array.dims[axis].attach_scale(file[name])
            start = 0
            for block in self.rows(times, 120 * 180):
                for part in np.array_split(block, 20):
                    array[start : start + len(part)] = part.reshape(-1, 120, 180)
                    start += len(part)

    def genotypes(self, path: Path, n: int, m: int) -> None:
        simulate_genotypes(path.with_suffix(""), n_samples=n // self.divisor, n_variants=m)

    def pgen(self, path: Path) -> None:
        import pgenlib

        bed = self.need("study.bed")
        fam = bed.with_suffix(".fam").read_text().splitlines()
        bim = [line.split() for line in bed.with_suffix(".bim").read_text().splitlines()]
        writer = pgenlib.PgenWriter(str(path).encode(), len(fam), variant_ct=len(bim), nonref_flags=False)
        width = -(-len(fam) // 4)
        packed = np.memmap(bed, dtype=np.uint8, mode="r", offset=3).reshape(len(bim), width)
        codes = np.array([2, -9, 1, 0], np.int8)
        for row in packed:
            calls = codes[(row[:, None] >> np.arange(0, 8, 2)) & 3].ravel()[: len(fam)]
            writer.append_biallelic(np.ascontiguousarray(calls))
        writer.close()
        rows = [line.split() for line in fam]
        path.with_suffix(".psam").write_text("#FID\tIID\n" + "".join(f"{row[0]}\t{row[1]}\n" for row in rows))
        lines = [f"{row[0]}\t{row[3]}\t{row[1]}\t{row[5]}\t{row[4]}\n" for row in bim]
        path.with_suffix(".pvar").write_text("#CHROM\tPOS\tID\tREF\tALT\n" + "".join(lines))

    def table(self, path: Path, n: int) -> None:
        rng = np.random.default_rng(3)
        n = n // self.divisor
        cells = rng.normal(size=(n, 3))
        lines = (f"{i}\t{a:.5f}\t{b:.5f}\t{c:.5f}\t{'abc'[i % 3]}\n" for i, (a, b, c) in enumerate(cells))
        with path.open("w") as file:
            file.write("id\theight\tweight\tage\tgroup\n")
            file.writelines(lines)

    def images(self, path: Path) -> None:
        rng = np.random.default_rng(4)
        path.mkdir()
        for i in range(8):
            side = 2_400 // self.divisor
            Image.fromarray(rng.integers(0, 255, (side, side, 3), np.uint8)).save(path / f"{i}.png")


# --------------------------------------------------------------------------------------------------------------- cases

FITTED = {
    "tall.pca": "pca {}/tall.npy -k 10",
    "bed.pca": "pca {}/study.bed -k 10",
    "many.pca": "pca {}/many.bed -k 10",
    "missing.ppca": "ppca {}/missing.npy -k 5",
    "widemissing.ppca": "ppca {}/widemissing.npy -k 5 --max-iter 5 --tol 0.9",
    "tall.fa": "factor_analysis {}/tall.npy -k 5 --max-iter 5 --tol 0.9",
    "points.kpca": "kpca {}/points.npy -k 10 --n-landmarks 500 --fit-inverse-transform",
    "points.mixture": "mixture {}/points.npy --n-clusters 3 -k 2 --max-iter 5 --tol 0.9",
    "wide.dual": "dual {}/wide.npy -k 5",
    "tall.pcr": "pcr {}/tall.npy -k 5 --target {}/targets.tsv:height",
}


def cases() -> list[Case]:
    """Return all cases: kinds, formats, numbers of components, commands that apply or view a result."""
    made = [Case(f"pca {name}", f"pca {{}}/{name} -k 10") for name in (
        "tall.npy", "tall64.npy", "pixels.npy", "narrow.npy", "wide.npy", "square.npy", "tall.zarr", "chunks.zarr",
        "wide.zarr", "shards.zarr", "format2.zarr", "study.bed", "many.bed", "study.pgen",
    )]  # fmt: skip
    made += [Case("pca group.zarr", "pca {}/group.zarr -k 10 --variable X")]
    for name in ("gzip.nc", "rows.nc", "contiguous.nc"):
        for dims in ("time", "lon", "lat,lon"):
            made += [Case(f"pca {name} {dims}", f"pca {{}}/{name} -k 5 --sample-dims {dims}")]
    for k in ("1", "100", "0.95", "all"):
        made += [Case(f"pca tall k={k}", f"pca {{}}/tall.npy -k {k}")]
    for words in (
        "pixels.npy -k all", "pixels.npy -k 0.95", "wide.npy -k 1", "wide.npy -k 100", "wide.npy -k 200",
        "square.npy -k 1", "square.npy -k 100", "narrow.npy -k all", "study.bed -k 1", "study.bed -k 40",
        "many.bed -k 40", "tall.npy -k 10 --solver krylov", "points.npy -k 2 --solver power",
        "wide.npy -k 10 --solver gram", "wide.npy -k 10 --solver krylov", "tall.npy -k 10 --scale unit",
        "missing.npy -k 10 --missing mean", "tall.npy -k 10 --certificate exact", "tall.npy -k 10 --tol 1e-7",
        "wide.npy -k 10 --tol 1e-7", "study.bed -k 10 --tol 1e-6", "study.bed -k 10 --outliers remove",
        "study.bed -k 10 --ld-prune 0.2", "study.bed -k 10 --maf 0.05", "study.bed -k 10 --export plink",
        "study.bed -k 10 --export tsv", "study.bed -k 10 --report {}/page.html", "tall.npy -k 10 --export tsv",
        "tall.npy -k 10 --report {}/page.html", "tall.zarr -k 10 --solver krylov", "study.bed -k 10 --threads 1",
    ):  # fmt: skip
        made += [Case(f"pca {words}".replace("{}/", ""), f"pca {{}}/{words}")]
    for words in (
        "ppca {}/tall.npy -k 10", "ppca {}/missing.npy -k 1", "ppca {}/missing.npy -k 10",
        "ppca {}/missing.npy -k auto --max-iter 5", "ppca {}/widemissing.npy -k 10 --max-iter 40 --tol 1e-12",
        "ppca {}/study.bed -k 5 --max-iter 5", "ppca {}/missing.npy -k 5 --max-iter 60 --tol 1e-12",
        "factor_analysis {}/tall.npy -k 10 --max-iter 20", "factor_analysis {}/missing.npy -k 5 --max-iter 20",
        "mixture {}/points.npy --n-clusters 4 -k 3 --max-iter 10",
        "mixture {}/tall.npy --n-clusters 2 -k 2 --max-iter 5",
        "dual {}/wide.npy -k 5", "dual {}/tall.npy -k 5",
        "kpca {}/points.npy -k 10 --n-landmarks 300", "kpca {}/points.npy -k 10 --n-landmarks 1000",
        "kpca {}/points.npy -k 10 --n-landmarks 1000 --landmarks kmeans",
        "kpca {}/points.npy -k 10 --n-landmarks 500 --landmarks leverage",
        "kpca {}/points.npy -k 10 --n-landmarks 500 --landmarks fourier",
        "kpca {}/points.npy -k 10 --n-landmarks auto", "kpca {}/tall.npy -k 50 --n-landmarks 500",
        "kpca {}/points.npy -k 10 --n-landmarks 500 --fit-inverse-transform",
        "pcr {}/tall.npy -k 10 --target {}/targets.tsv:height",
        "pcr {}/tall.npy -k 10 --target {}/targets.tsv:height,weight --covariates {}/targets.tsv:age,group",
        "pcr {}/wide.npy -k 10 --target {}/widetargets.tsv:height",
        "pcr {}/wide.npy -k 10 --cv 0 --target {}/widetargets.tsv:height",
    ):  # fmt: skip
        made += [Case(words.replace("{}/", ""), words)]
    for words in (
        "project {}/tall.pca {}/new.npy", "project {}/tall.fa {}/new.npy", "project {}/bed.pca {}/study.bed",
        "project {}/bed.pca {}/study.bed --projection simple", "project {}/missing.ppca {}/missing.npy",
        "project {}/points.kpca {}/points.npy", "impute {}/missing.ppca {}/missing.npy",
        "impute {}/widemissing.ppca {}/widemissing.npy", "impute {}/tall.fa {}/new.npy",
        "denoise {}/tall.pca {}/new.npy", "denoise {}/points.kpca {}/points.npy", "predict {}/tall.pcr {}/new.npy",
    ):  # fmt: skip
        made += [Case(words.replace("{}/", ""), words)]
    for name in ("tall.pca", "bed.pca", "many.pca", "points.kpca", "points.mixture", "missing.ppca"):
        made += [Case(f"report {name}", f"report {{}}/{name}", "out.html")]
    made += [Case(f"plot {name}", f"plot {{}}/{name} --figure scores", "out.png") for name in ("tall.pca", "bed.pca")]
    made += [
        Case("export bed.pca plink", "export {}/bed.pca --format plink", "out"),
        Case("export tall.pca tsv", "export {}/tall.pca --format tsv", "out"),
        Case("assign tall.pca", "assign {}/tall.pca --labels {}/targets.tsv:group --components 4", "out.tsv"),
        Case("prune study.bed", "prune {}/study.bed --r2 0.2", "out"),
        Case("prune many.bed", "prune {}/many.bed --r2 0.2", "out"),
        Case("convert images", "convert {}/images OUT --size 64x64", "out.zarr"),
        Case("info tall.npy", "info {}/tall.npy", ""),
        Case("info tall.pca", "info {}/tall.pca", ""),
    ]
    graphs = {
        "dask npy": "dask.array.from_array(np.load('{}/tall.npy', mmap_mode='r'), chunks=(10000, -1))",
        "dask zarr": "dask.array.from_zarr('{}/tall.zarr')",
        "dask x + 1": "dask.array.from_zarr('{}/tall.zarr') + 1",
        "dask concatenate": "dask.array.concatenate([dask.array.from_zarr('{}/tall.zarr')] * 2)",
        "dask rechunk": "dask.array.from_zarr('{}/tall.zarr').rechunk((8000, 300))",
        "xarray nc": "xarray.open_dataset('{}/contiguous.nc', chunks=dict(time=50)).sst",
        "numpy": "np.load('{}/wide.npy', mmap_mode='r')",
    }
    return made + [Case(f"python {name}", graph, "", python=True) for name, graph in graphs.items()]


# ----------------------------------------------------------------------------------------------------------------- run


class Runner:
    """Runs cases in a folder."""

    def __init__(self, folder: Path, small: bool):
        self.folder, self.data = folder, Data(folder, small)

    def prepare(self, words: str) -> str:
        """Make the data sets and results that a command names; return its words with their paths."""
        for name in re.findall(r"\{\}/([\w.]+)", words):
            if name in self.data.makers:
                self.data.need(name)
            elif name in FITTED and not (self.folder / name).exists():
                done = self.shell([*self.prepare(FITTED[name]).split(), "--out", str(self.folder / name)])
                if done.code:
                    raise SystemExit(f"{FITTED[name]}: {done.printed}")
        return words.replace("{}", str(self.folder))

    def shell(self, words: list[str], code: str = SHELL) -> Outcome:
        """Run a command; return its peak."""
        peak = self.folder / "peak"
        peak.unlink(missing_ok=True)
        start = time.monotonic()
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "COLUMNS": "1000"}
        done = subprocess.run(
            [sys.executable, "-c", code, str(peak), *words], capture_output=True, text=True, timeout=SECONDS,
            cwd=self.folder, env=environment,
        )  # fmt: skip
        size = int(peak.read_text()) * 1024 if peak.exists() else 0
        return Outcome(done.returncode, size, done.stderr.strip() or done.stdout.strip(), time.monotonic() - start)

    def once(self, case: Case, memory: str) -> Outcome:
        """Run a case with a limit, and remove its output."""
        words = self.prepare(case.words)
        if case.python:
            return self.shell([words, memory], PYTHON)
        out = self.folder / "output"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        given = [word.replace("OUT", str(out / case.out)) for word in words.split()]
        if case.out and "OUT" not in words:
            given += ["--out", str(out / case.out)]
        try:
            return self.shell([*given, "--memory", memory])
        finally:
            shutil.rmtree(out)
            (self.folder / "page.html").unlink(missing_ok=True)

    def row(self, case: Case) -> Row:
        """Let a case name its minimum, and run it at the limits."""
        asked = self.once(case, "1MB")
        named = re.search(r"needs at least (\d+) MB", asked.printed)
        row = Row(case, float(named[1]) if named else float("nan"))
        if named is None or asked.code == 0:
            row.failures.append(f"named no minimum (exit {asked.code}): {asked.printed[-200:]}")
            return row
        for factor in FACTORS:
            limit = int(row.minimum * factor)
            done = self.once(case, f"{limit}MB")
            row.seconds += done.seconds
            row.peaks.append(f"{done.peak / 1e6:.0f} / {limit}" if done.code == 0 else "-")
            if done.code:
                row.failures.append(f"{limit} MB: exit {done.code}: {done.printed[-200:]}")
            elif not done.peak:
                row.failures.append("reported no peak")
            elif done.peak > limit * 1e6:
                row.failures.append(f"over at {factor:g}")
        return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", action="store_true", help="one case in eight")
    parser.add_argument("--small", action="store_true", help="data of a quarter of the size")
    parser.add_argument("--only", default="", help="cases whose names contain these words")
    parser.add_argument("--folder", type=Path, help="keep the data here, for the next time")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    given = parser.parse_args()
    chosen = [case for case in cases() if all(word in case.name for word in given.only.split())]
    chosen = chosen[::8] if given.sample else chosen
    if given.list:
        print(*(case.name for case in chosen), f"{len(chosen)} cases", sep="\n")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        runner = Runner(folder.resolve(), given.small)
        print(f"| case | minimum MB | {' | '.join(f'peak / limit at {f:g}' for f in FACTORS)} | seconds | |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | --- |", flush=True)
        rows = []
        for case in chosen:
            rows.append(runner.row(case))
            print(rows[-1], flush=True)
    failed = [row for row in rows if row.failures]
    print(f"\n{len(rows)} cases at {len(FACTORS)} limits: {len(rows) - len(failed)} kept, {len(failed)} not")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

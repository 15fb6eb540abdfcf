"""Benchmark on genotypes: every tool as a whole command, from the shell to text files written.

One run simulates the files (if they are not there), finds the true eigenvectors, the floor of one sweep, and one row a
tool and k: seconds of the whole command, peak resident size, and 1 - MEV, the share of the true leading subspace that
was missed. plink2 comes last, and has a row of its own for each BLAS that it was run with. With --scaling it is instead
the time of one sweep and of the whole command against the number of samples and of variants. Results go to
FOLDER/genotypes.json as they come; what is there from an earlier run stays until it is measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from measuring import THREADS, missed, run, say

KS = (10, 20)
TOOLS = ("floor", "streampca", "numpy", "plink2")
# samples, variants, where the true eigenvectors come from; the small ones try the script.
FILES = ((5_000, 100_000, "grm"), (20_000, 200_000, "streampca"))
SMALL_FILES = ((1_000, 10_000, "grm"), (2_000, 20_000, "streampca"))
TRUTHS = {
    "grm": "exact: eigenvectors of the n x n GRM, summed in float64 by NumPy",
    "streampca": "a run of streampca with --tol 1e-7, its residuals checked by NumPy in float64",
}
# The sweep that the floor is for.
SWEEP_COMPONENTS = 16
SWEEP_BLOCK = 20
READ_BYTES = 4 << 20
# Variants of one block of the NumPy loops.
BLOCK = 1_000
# Sizes for --scaling: samples at so many variants, variants at so many samples.
SCALING = {"n": ((2_500, 5_000, 10_000, 20_000), 50_000), "m": ((25_000, 50_000, 100_000, 200_000), 5_000)}
SMALL_SCALING = {"n": ((500, 1_000, 2_000, 4_000), 5_000), "m": ((2_500, 5_000, 10_000, 20_000), 1_000)}
STARTED = time.time()


# Running things


def this(*arguments: object) -> list[str]:
    """Return the command that runs one of the workers below."""
    return [sys.executable, str(Path(__file__)), "--worker", *map(str, arguments)]


def worker(*arguments: object) -> Any:
    """Run a worker in a process of its own; returns what it prints as JSON on its last line."""
    done = subprocess.run(this(*arguments), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


class Report:
    """What is measured, by file; written whole after each measurement."""

    def __init__(self, folder: Path):
        self._path = folder / "genotypes.json"
        self.content: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        self.content |= {"cores": os.cpu_count(), "threads": THREADS}

    def put(self, value: Any, *keys: str) -> None:
        """Put a value at content[keys[0]][keys[1]]..., and write it all."""
        place = self.content
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
        beside = self._path.with_suffix(".unfinished")
        beside.write_text(json.dumps(self.content, indent=1))
        beside.rename(self._path)


# The tools


def streampca_command(prefix: Path, out: str, k: int, *options: str) -> str:
    """Find the components; with --export plink among the options, write them as plink does as well."""
    return shlex.join(
        ["streampca", "pca", f"{prefix}.bed", "-k", str(k), "--threads", str(THREADS), "--out", f"{out}.zarr",
         "--overwrite", "--quiet", *options]
    )  # fmt: skip


def write_text(out: str) -> None:
    """Write what streampca found as plink does, to compare it; not timed."""
    subprocess.run(["streampca", "export", f"{out}.zarr", "--out", out, "--overwrite"], check=True, capture_output=True)


def plink_command(prefix: Path, out: str, k: int) -> str:
    return shlex.join(
        ["plink2", "--bfile", str(prefix), "--pca", "approx", str(k), "--threads", str(THREADS), "--out", out]
    )


def blas_of_plink() -> str:
    """Return the library behind libblas.so.3, which Debian's plink2 does its products with.

    Without libopenblas0 that is the reference implementation, which makes plink2 several times slower.
    """
    code = "import ctypes; ctypes.CDLL('libblas.so.3'); print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True).stdout
    paths = [line.split()[-1] for line in maps.splitlines() if "blas" in line]
    return next((path for path in paths if "openblas" in path), paths[0] if paths else "unknown")


def attributes_of(out: str) -> dict[str, Any]:
    """Return what streampca noted of a run."""
    return json.loads((Path(f"{out}.zarr") / "zarr.json").read_text())["attributes"]


def read_eigenvec(path: str, prefix: Path) -> np.ndarray:
    """Read the vectors (n x k) of an .eigenvec file, whose samples must be those of the .fam, in order."""
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    first = next(i for i, name in enumerate(lines[0]) if name.startswith("PC"))
    names = [line.split()[1] for line in Path(f"{prefix}.fam").read_text().splitlines()]
    if [line[first - 1] for line in lines[1:]] != names:
        raise RuntimeError(f"{path}: its samples are not those of {prefix}.fam")
    return np.array([line[first:] for line in lines[1:]], np.float64)


# The truth and the NumPy loop, without streampca


def decoded(prefix: Path, step: int, dtype: str) -> Iterator[np.ndarray]:
    """Yield the standardised genotypes (step x n) of a .bed, by a table of what each byte stands for."""
    n = Path(f"{prefix}.fam").read_text().count("\n")
    values = np.array([2, np.nan, 1, 0], dtype)
    table = values[(np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3]
    packed = np.memmap(f"{prefix}.bed", np.uint8, "r", offset=3).reshape(-1, -(-n // 4))
    for i in range(0, len(packed), step):
        x = table[packed[i : i + step]].reshape(-1, 4 * packed.shape[1])[:, :n]
        yield standardised(x, axis=1)


def standardised(x: np.ndarray, axis: int) -> np.ndarray:
    """Centre and scale x in place by the allele frequencies along the samples (Patterson et al. 2006); gaps to zero."""
    missing = np.isnan(x)
    np.copyto(x, 0, where=missing)
    called = x.shape[axis] - np.count_nonzero(missing, axis=axis, keepdims=True)
    p = x.sum(axis=axis, keepdims=True, dtype="f8") / np.maximum(2 * called, 1)
    with np.errstate(divide="ignore"):
        scale = np.where((p > 0) & (p < 1), 1 / np.sqrt(2 * p * (1 - p)), 0)
    x -= (2 * p).astype(x.dtype)
    x *= scale.astype(x.dtype)
    np.copyto(x, 0, where=missing)
    return x


def true_by_grm(prefix: Path) -> dict[str, Any]:
    """Leading eigenvectors of the n x n matrix; products in float32, their sums in float64."""
    from scipy.linalg import eigh

    total: Any = 0.0
    for x in decoded(prefix, BLOCK, "f4"):
        total = total + (x.T @ x).astype("f8")
    n = len(total)
    values, vectors = eigh(total, subset_by_index=[n - max(KS), n - 1], overwrite_a=True)
    return {"vectors": vectors[:, ::-1], "values": values[::-1]}


def true_by_streampca(prefix: Path) -> dict[str, Any]:
    """Vectors of a run to 1e-7, with the residuals ||S u - theta u|| / theta by one pass of NumPy in float64."""
    out = f"{prefix}.truth"
    row = run(streampca_command(prefix, out, max(KS), "--tol", "1e-7", "--export", "plink"), Path(f"{out}.log"))
    if "failed" in row:
        raise RuntimeError(f"streampca failed: {row['failed']}")
    vectors = np.linalg.qr(read_eigenvec(f"{out}.eigenvec", prefix))[0]
    product = sum(x.T @ (x @ vectors) for x in decoded(prefix, BLOCK // 4, "f8"))
    values = (vectors * product).sum(axis=0)
    return {
        "vectors": vectors,
        "values": values,
        "residuals": np.linalg.norm(product - vectors * values, axis=0) / values,
    }


def work_truth(prefix: str, kind: str) -> None:
    """Find the true vectors, and keep them beside the data."""
    found = {"grm": true_by_grm, "streampca": true_by_streampca}[kind](Path(prefix))
    np.savez(f"{prefix}.unfinished.npz", **found)
    Path(f"{prefix}.unfinished.npz").rename(f"{prefix}.{kind}.npz")
    print("null")


def work_numpy(prefix: str, out: str, k: str, width: str, sweeps: str) -> None:
    """Run the plain loop: blocks by bed-reader, NumPy for the rest, the block made orthonormal after each sweep."""
    from bed_reader import open_bed

    with open_bed(f"{prefix}.bed") as bed:
        n, m = bed.shape
        q = np.random.default_rng(0).standard_normal((n, int(width)), dtype="f4")
        for _ in range(int(sweeps)):
            q = np.linalg.qr(q)[0]
            product = np.zeros_like(q)
            for i in range(0, m, BLOCK):
                x = bed.read(index=np.s_[:, i : i + BLOCK], dtype="float32", num_threads=THREADS)
                x = standardised(x, axis=0)
                product += x @ (x.T @ q)
            q = product
        vectors = np.linalg.svd(q, full_matrices=False)[0][:, : int(k)]
        names = zip(bed.fid, bed.iid, strict=True)
        with open(f"{out}.eigenvec", "w") as file:
            file.write("\t".join(["#FID", "IID", *(f"PC{i + 1}" for i in range(int(k)))]) + "\n")
            for (fid, iid), row in zip(names, vectors, strict=True):
                file.write("\t".join([fid, iid, *(f"{v:.9g}" for v in row)]) + "\n")


# One sweep and its floor


def best_of_three(function: Callable[[], Any]) -> float:
    """Return the seconds of the fastest of three calls."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def read_all(path: str) -> None:
    """Read a file from end to end in pieces, each thread into a buffer of its own."""
    size = os.stat(path).st_size

    def read(first: int) -> None:
        buffer = bytearray(READ_BYTES)
        file = os.open(path, os.O_RDONLY)
        for place in range(first * READ_BYTES, size, THREADS * READ_BYTES):
            os.preadv(file, [buffer], place)
        os.close(file)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, range(THREADS)))


def products_on_tiles(n: int, m: int, length: int) -> Callable[[], None]:
    """Return a function that does the products of one sweep on tiles that are ready, one for each thread."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((n, SWEEP_BLOCK), dtype="f4")
    tiles = [rng.standard_normal((length, n), dtype="f4") for _ in range(THREADS)]

    def multiply(thread: int) -> None:
        out = np.empty((SWEEP_BLOCK, n), "f4")
        for start in range(thread * length, m, THREADS * length):
            tile = tiles[thread][: m - start]
            np.matmul((tile @ q).T, tile, out=out)

    def all_tiles() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(multiply, range(THREADS)))

    return all_tiles


def streampca_sweep(prefix: str) -> float:
    """Seconds of one sweep of streampca with the scaling known."""
    import dask

    from streampca.models.pca.fit import plan_pca, resolve
    from streampca.models.pca.options import PCAOptions
    from streampca.solvers.base import first_sweep
    from streampca.sources import open_genotypes
    from streampca.sweep.statistics import Product
    from streampca.sweep.sweep import Sweeps

    source = open_genotypes(f"{prefix}.bed")
    options = resolve(PCAOptions(n_components=SWEEP_COMPONENTS, solver="krylov"), source)
    with dask.config.set(num_workers=THREADS):
        chosen = plan_pca(source, options)
    sweeps = Sweeps(chosen.matrix(source, options.missing, options.scale), chosen.threads)
    q = np.linalg.qr(np.random.default_rng(0).standard_normal((source.shape[0], SWEEP_BLOCK)))[0].astype("f4")
    first_sweep(sweeps, Product(q), "first")
    return best_of_three(lambda: sweeps.run(Product(q), "bench"))


def work_sweep(prefix: str) -> None:
    print(json.dumps({"sweep": streampca_sweep(prefix)}))


def work_floor(prefix: str, n: str, m: str) -> None:
    """Time one sweep, a plain read of the file, and the products of a sweep on ready tiles."""
    from threadpoolctl import threadpool_limits

    from streampca.sweep.statistics import Statistic

    length = Statistic().tile_length(int(n), 4)
    found: dict[str, Any] = {"block": SWEEP_BLOCK, "tile_length": length, "sweep": streampca_sweep(prefix)}
    with threadpool_limits(1, "blas"):
        found["read"] = best_of_three(lambda: read_all(f"{prefix}.bed"))
        found["products"] = best_of_three(products_on_tiles(int(n), int(m), length))
    found["floor"] = found["read"] + found["products"]
    found["ratio"] = found["sweep"] / found["floor"]
    print(json.dumps(found))


def work_simulate(prefix: str, n: str, m: str) -> None:
    """Simulate genotypes; the .bed takes its name last, so that it is there only if all is."""
    from streampca.demos.simulate_genotypes import simulate_genotypes

    simulate_genotypes(Path(f"{prefix}.unfinished"), int(n), int(m))
    for suffix in (".fam", ".bim", ".pop", ".bed"):
        Path(f"{prefix}.unfinished{suffix}").rename(f"{prefix}{suffix}")
    print("null")


WORKERS: dict[str, Callable[..., None]] = {
    "simulate": work_simulate,
    "truth": work_truth,
    "numpy": work_numpy,
    "sweep": work_sweep,
    "floor": work_floor,
}


# The benchmark


def simulated(folder: Path, n: int, m: int) -> Path:
    """Return the prefix of a file of this size, made if it is not there."""
    prefix = folder / f"genotypes-{n}x{m}"
    if not Path(f"{prefix}.bed").exists():
        say(f"simulating {n:,} x {m:,}")
        worker("simulate", prefix, n, m)
    return prefix


class Bench:
    """One file: its truth, its floor, and a row for each k and tool."""

    def __init__(self, folder: Path, report: Report, n: int, m: int, kind: str):
        self.report, self.n, self.m, self.kind = report, n, m, kind
        self.name = f"{n}x{m}"
        self.prefix = simulated(folder, n, m)
        report.put([n, m], self.name, "shape")

    def find_truth(self) -> None:
        kept = Path(f"{self.prefix}.{self.kind}.npz")
        if not kept.exists():
            say(f"{self.name}: true eigenvectors ({TRUTHS[self.kind]})")
            worker("truth", self.prefix, self.kind)
        with np.load(kept) as found:
            self.true = found["vectors"]
            facts = {"from": TRUTHS[self.kind], "values": found["values"].tolist()}
            if "residuals" in found:
                facts["residual"] = float(found["residuals"].max())
        self.report.put(facts, self.name, "truth")

    def find_floor(self) -> None:
        say(f"{self.name}: one sweep and its floor")
        self.report.put(worker("floor", self.prefix, self.n, self.m), self.name, "sweep")

    def measure(self, k: int, tool: str, command: str, out: str) -> None:
        """Run one tool and put down its row."""
        say(f"{self.name}: {tool}, k = {k}, from {time.strftime('%H:%M:%S')}")
        row = run(command, Path(f"{out}.log")) | {"at": time.time()}
        if "failed" not in row:
            if tool.startswith("streampca"):
                write_text(out)
            row["missed"] = missed(read_eigenvec(f"{out}.eigenvec", self.prefix), self.true[:, :k])
            if tool.startswith("streampca"):
                row |= {key: attributes_of(out)[key] for key in ("solver", "n_sweeps", "converged")}
        self.report.put(row, self.name, "tools", str(k), tool)
        say(f"    {row['failed']}" if "failed" in row else f"    {row['seconds']:.1f} s, 1 - MEV {row['missed']:.1e}")

    def out(self, k: int, tool: str) -> str:
        return f"{self.prefix}.{tool.replace(' + ', '-').replace(' ', '-')}-{k}"

    def run_streampca(self, k: int) -> None:
        variants = {
            "streampca": (),
            "streampca 500MB": ("--memory", "500MB"),
            "streampca 1e-6": ("--tol", "1e-6"),
            "streampca + text": ("--export", "plink"),
        }
        for tool, options in variants.items():
            out = self.out(k, tool)
            self.measure(k, tool, streampca_command(self.prefix, out, k, *options), out)

    def run_numpy(self, k: int) -> None:
        """Run the plain loop with the block and the sweeps of streampca's own run."""
        from streampca.solvers.cost import block_size

        out = self.out(k, "numpy")
        sweeps = self.rows(k)["streampca"].get("n_sweeps")
        if sweeps is not None:
            self.measure(k, "numpy", shlex.join(this("numpy", self.prefix, out, k, block_size(k), sweeps)), out)
            self.report.put(sweeps, self.name, "tools", str(k), "numpy", "n_sweeps")

    def run_plink(self, k: int) -> None:
        """Run plink2; with a BLAS other than the one that Debian installs it with, it has a row of its own."""
        blas = blas_of_plink()
        tool = "plink2 OpenBLAS" if "openblas" in blas else "plink2"
        out = self.out(k, tool)
        self.measure(k, tool, plink_command(self.prefix, out, k), out)
        self.report.put(blas, self.name, "tools", str(k), tool, "blas")

    def rows(self, k: int) -> dict[str, Any]:
        return self.report.content[self.name]["tools"][str(k)]

    def show(self) -> None:
        """Print the table of this file."""
        content = self.report.content[self.name]
        truth, sweep = content["truth"], content["sweep"]
        say(f"\n{self.n:,} samples x {self.m:,} variants, {THREADS} threads")
        say(f"truth: {truth['from']}" + (f": {truth['residual']:.1e} at most" if "residual" in truth else ""))
        say(f"{'k':>3}  {'tool':<17}{'seconds':>9}{'ratio':>8}{'1 - MEV':>10}{'peak MB':>9}{'sweeps':>8}")
        for k in KS:
            rows = self.rows(k)
            for tool, row in rows.items():
                say(f"{k:>3}  {tool:<17}" + show_row(row, rows["streampca"].get("seconds")))
        if any("blas" in row and "openblas" not in row["blas"] for k in KS for row in self.rows(k).values()):
            say("plink2 without OpenBLAS is slower by a factor: apt-get install libopenblas0-pthread, and run again")
        say(
            f"one sweep, block of {sweep['block']}: {sweep['sweep']:.2f} s, {sweep['ratio']:.2f} of the floor "
            f"(plain read {sweep['read']:.3f} s + products on ready tiles {sweep['products']:.2f} s)"
        )


def show_row(row: dict[str, Any], reference: float | None) -> str:
    """Return the numbers of one row as text."""
    earlier = "  (an earlier run)" if row["at"] < STARTED else ""
    if "failed" in row:
        return f"  failed: {row['failed']}{earlier}"
    ratio = f"{row['seconds'] / reference:.2f}" if reference else "-"
    text = f"{row['seconds']:9.1f}{ratio:>8}{row['missed']:10.1e}{row['megabytes']:9.0f}{row.get('n_sweeps', '-'):>8}"
    return text + earlier


def compare(benches: list[Bench], tools: list[str]) -> None:
    """Run the tools on all files: plink2, by far the slowest, after all others."""
    for bench in benches:
        # The floor comes first: its sweep also lets numba compile what is not in its cache.
        if "floor" in tools:
            bench.find_floor()
        bench.find_truth()
        for k in KS:
            if "streampca" in tools:
                bench.run_streampca(k)
            if "numpy" in tools:
                bench.run_numpy(k)
    for bench in benches:
        for k in KS:
            if "plink2" in tools:
                bench.run_plink(k)
    for bench in benches:
        bench.show()


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the least-squares slope of log seconds against log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def scale(folder: Path, report: Report, small: bool) -> None:
    """Time one sweep and the whole command, k = 10, against samples and against variants."""
    k = KS[0]
    key = "scaling-small" if small else "scaling"
    for axis, (sizes, fixed) in (SMALL_SCALING if small else SCALING).items():
        rows: list[dict[str, Any]] = []
        for size in sizes:
            n, m = (size, fixed) if axis == "n" else (fixed, size)
            prefix = simulated(folder, n, m)
            say(f"{n} x {m}: one sweep, then the command")
            out = f"{prefix}.scaling"
            row = {
                "n": n,
                "m": m,
                **worker("sweep", prefix),
                **run(streampca_command(prefix, out, k), Path(f"{out}.log")),
            }
            if "failed" in row:
                raise RuntimeError(f"streampca failed: {row['failed']}")
            row["n_sweeps"] = attributes_of(out)["n_sweeps"]
            rows.append(row)
            report.put(rows, key, axis, "rows")
        slopes = {
            name: exponent([row[axis] for row in rows], [row[name] for row in rows]) for name in ("sweep", "seconds")
        }
        report.put(slopes, key, axis, "exponents")
        show_scaling(axis, fixed, rows, slopes)


def show_scaling(axis: str, fixed: int, rows: list[dict[str, Any]], slopes: dict[str, float]) -> None:
    other = "m" if axis == "n" else "n"
    say(f"\n{other} = {fixed:,}, {THREADS} threads; sweep with a block of {SWEEP_BLOCK}, command with k = {KS[0]}")
    say(f"{axis:>9}{'sweep s':>10}{'command s':>11}{'sweeps':>8}{'peak MB':>9}")
    for row in rows:
        text = f"{row[axis]:>9,}{row['sweep']:10.3f}{row['seconds']:11.2f}"
        say(text + f"{row['n_sweeps']:>8}{row['megabytes']:9.0f}")
    say(f"{'exponent':>9}{slopes['sweep']:10.2f}{slopes['seconds']:11.2f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--small", action="store_true", help="small files, to try the script")
    parser.add_argument("--scaling", action="store_true", help="time against size instead of against other tools")
    parser.add_argument("--tools", default=",".join(TOOLS), help=f"some of {','.join(TOOLS)}, for a rerun of these")
    parser.add_argument("--files", help="some of the files, as 5000x100000,20000x200000")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        WORKERS[arguments.worker[0]](*arguments.worker[1:])
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    report = Report(arguments.folder)
    if arguments.scaling:
        scale(arguments.folder, report, arguments.small)
        return
    files = SMALL_FILES if arguments.small else FILES
    if arguments.files:
        files = tuple(file for file in files if f"{file[0]}x{file[1]}" in arguments.files.split(","))
    compare([Bench(arguments.folder, report, *file) for file in files], arguments.tools.split(","))


if __name__ == "__main__":
    main()

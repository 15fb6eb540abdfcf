"""Benchmark on dense data: every tool in a process of its own, from the shell to components and scores on disk.

One run makes the data (if they are not there), the exact answer in float64, the floor, and one row a tool: seconds of
the whole process, peak resident size, and 1 - MEV, the share of the true leading subspace that was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from multiprocessing import Process
from pathlib import Path

import numpy as np
import zarr
from measuring import HERE, THREADS, missed, run
from zarr.codecs import ZstdCodec

K = 20
SETS = {
    # name: samples, features, chunk
    "tall": (400_000, 1_000, (10_000, 1_000)),
    "wide": (4_000, 100_000, (4_000, 2_500)),
}
TOOLS = {
    "tall": ["streampca", "sklearn", "sklearnex", "scanpy", "dask-ml", "svd_compressed", "svd_compressed-compute"],
    "wide": ["streampca", "streampca-bounded", "svd_compressed", "svd_compressed-compute"],
}
# What each streampca run is allowed.
MEMORY = {("tall", "streampca"): "430MB", ("wide", "streampca"): "2.5GB", ("wide", "streampca-bounded"): "500MB"}


def simulate(path: Path, n: int, d: int, chunk: tuple[int, int]) -> None:
    """Forty factors whose strengths fall off as a power, in noise; mean 3."""
    if path.exists():
        return
    rng = np.random.default_rng(0)
    strength = (np.arange(1, 41) ** -0.7).astype("f4")
    left = rng.standard_normal((n, 40), dtype="f4")
    right = rng.standard_normal((40, d), dtype="f4") * strength[:, None]
    beside = path.with_name(path.name + ".unfinished")
    array = zarr.create_array(
        beside, shape=(n, d), chunks=chunk, dtype="f4", compressors=ZstdCodec(level=1), overwrite=True
    )
    for i in range(0, n, chunk[0]):
        for j in range(0, d, chunk[1]):
            block = left[i : i + chunk[0]] @ right[:, j : j + chunk[1]]
            array[i : i + chunk[0], j : j + chunk[1]] = block + rng.standard_normal(block.shape, dtype="f4") + 3
    beside.rename(path)


def exact_components(path: Path) -> np.ndarray:
    """Leading K right singular vectors in float64, from the small side's matrix; kept beside the data."""
    kept = path.with_suffix(".exact.npy")
    if kept.exists():
        return np.load(kept)
    array = zarr.open_array(path, mode="r")
    n, d = array.shape
    along = 0 if d <= n else 1
    step = array.chunks[along]
    small = np.zeros((min(n, d),) * 2)
    pieces = [slice(i, i + step) for i in range(0, array.shape[along], step)]
    read = (lambda p: array[p]) if along == 0 else (lambda p: array[:, p])
    mean = np.concatenate([read(p).mean(0, dtype="f8")[None] for p in pieces])
    mean = mean.mean(0) if along == 0 else np.concatenate([read(p).mean(0, dtype="f8") for p in pieces])
    for p in pieces:
        block = read(p).astype("f8") - (mean if along == 0 else mean[p])
        small += block.T @ block if along == 0 else block @ block.T
    vectors = np.linalg.eigh(small)[1][:, : -K - 1 : -1]
    if along == 1:
        vectors = np.concatenate([(read(p).astype("f8") - mean[p]).T @ vectors for p in pieces])
        vectors = np.linalg.qr(vectors)[0]
    np.save(kept, vectors.T)
    return vectors.T


def made(name: str, folder: Path, small: bool) -> tuple[Path, tuple[int, int], tuple[int, int]]:
    """Make the data and the exact answer if they are not there; returns where they are, the shape and the chunks."""
    n, d, chunk = SETS[name]
    if small:
        n, d = (n // 10, d) if n > d else (n, d // 10)
    data = folder / f"{name}{'-small' if small else ''}.zarr"
    # In processes of their own, so that this one stays small.
    for step in (partial(simulate, data, n, d, chunk), partial(exact_components, data)):
        worker = Process(target=step)
        worker.start()
        worker.join()
        if worker.exitcode != 0:
            raise RuntimeError(f"{data} could not be made")
    return data, (n, d), chunk


def command_of(tool: str, name: str, data: Path, out: Path) -> list[str]:
    """Return the command that runs one tool."""
    if tool.startswith("streampca"):
        return ["streampca", "pca", str(data), "-k", str(K), "--out", str(out), "--overwrite", "--quiet",
                "--threads", str(THREADS), "--memory", MEMORY[name, tool]]  # fmt: skip
    return [sys.executable, str(HERE / "dense_peers.py"), tool, str(data), str(out), str(K)]


def measured(tool: str, name: str, data: Path, out: Path) -> tuple[float, float]:
    """Run one tool as its own process; returns seconds and peak megabytes."""
    row = run(command_of(tool, name, data, out), out.with_name(f"{out.name}.log"))
    if "failed" in row:
        raise RuntimeError(f"{tool} failed on {name}: {row['failed']}")
    return row["seconds"], row["megabytes"]


def components_in(tool: str, out: Path) -> np.ndarray:
    if tool.startswith("streampca"):
        return np.asarray(zarr.open_array(out / "components", mode="r")[:])
    return np.load(f"{out}.components.npy")


def floor(data: Path, name: str) -> dict[str, float]:
    """Seconds of one plain read of the store, and of one sweep's products on ready tiles, in a process of its own."""
    command = [sys.executable, str(HERE / "dense_peers.py"), "floor", str(data), name, str(THREADS)]
    done = subprocess.run(
        command, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--small", action="store_true", help="a tenth of the size, to try the script")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--repeat", type=int, default=1, help="runs of each tool; the fastest counts")
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    report: dict[str, object] = {"cores": os.cpu_count(), "threads": THREADS, "k": K}
    for name in arguments.sets:
        data, (n, d), chunk = made(name, arguments.folder, arguments.small)
        exact = exact_components(data)
        bound = floor(data, name)
        print(f"\n{name}: {n:,} x {d:,} float32, chunks {chunk[0]:,} x {chunk[1]:,}, k = {K}, {THREADS} threads")
        print(f"floor: plain read {bound['read']:.1f} s + products {bound['products']:.1f} s a sweep")
        print(f"{'tool':<26}{'seconds':>9}{'ratio':>8}{'MB':>8}{'1 - MEV':>11}")
        rows: dict[str, dict[str, float]] = {}
        for tool in TOOLS[name]:
            out = arguments.folder / f"{name}.{tool}"
            runs = [measured(tool, name, data, out) for _ in range(arguments.repeat)]
            seconds, megabytes = min(runs)
            short = missed(components_in(tool, out).T, exact.T)
            rows[tool] = {"seconds": seconds, "megabytes": megabytes, "missed": short}
            ratio = seconds / rows["streampca"]["seconds"]
            print(f"{tool:<26}{seconds:9.1f}{ratio:8.1f}{megabytes:8.0f}{short:11.1e}", flush=True)
        sweep = best_sweep(arguments.folder / f"{name}.streampca")
        ratio = sweep / (bound["read"] + bound["products"])
        print(f"one sweep of streampca {sweep:.1f} s: {ratio:.2f} of the floor")
        report[name] = {"shape": [n, d], "floor": bound, "sweep": sweep, "tools": rows}
    (arguments.folder / "dense.json").write_text(json.dumps(report, indent=1))


def best_sweep(out: Path) -> float:
    """Seconds of the sweep that made the first product of the run, from its own record."""
    attributes = json.loads((out / "zarr.json").read_text())["attributes"]
    return float(json.loads(attributes["sweep_seconds"])[0])


if __name__ == "__main__":
    main()

"""Benchmark of kernel PCA by landmarks, against scikit-learn's Nystroem and PCA: every tool in a process of its own.

Curved clusters in a Zarr store, as many landmarks for each, two threads. streampca reads the store as it goes;
scikit-learn has it in memory, and its clock is read without and with the time to load it. Scores are compared by the
cosines of the angles between their subspaces, variances by their ratio. Landmarks are drawn at random, so that tools
differ as two draws do: a second seed of streampca says how much that is, and the command draws from its seed in another
way. Results go to FOLDER/kernel.json.

--large is for data larger than the memory limit, streampca alone; --scaling for how seconds grow with samples.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from multiprocessing import Process
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from measuring import THREADS, say
from zarr.codecs import ZstdCodec

K = 20
D = 32
GAMMA = 1 / 32
MEMORY = "500MB"
CHUNK = 10_000
# As many as leave a gap after K components, without which no two draws of landmarks agree on the last of them.
CLUSTERS = K + 1
# Samples and landmarks; the small ones try the script.
COMPARED, SMALL_COMPARED = (200_000, 1000), (20_000, 300)
LARGE, SMALL_LARGE = (5_000_000, 1000), (100_000, 300)
SCALING, SMALL_SCALING = (25_000, 50_000, 100_000, 200_000, 400_000), (5_000, 10_000, 20_000, 40_000)
# The first is what the others are compared with.
TOOLS = ("streampca", "streampca-command", "streampca-seed-1", "scikit-learn")


def simulate(path: Path, n: int) -> None:
    """Write clusters along curves, a + b t + c t^2 with noise around each; chunk by chunk, the same for any n."""
    if path.exists():
        return
    shapes = np.random.default_rng(0).standard_normal((3, CLUSTERS, D), dtype="f4")
    shapes[1:] *= np.float32(0.4)
    shares = np.linspace(2, 1, CLUSTERS)
    beside = path.with_name(path.name + ".unfinished")
    array = zarr.create_array(
        beside, shape=(n, D), chunks=(CHUNK, D), dtype="f4", compressors=ZstdCodec(level=1), overwrite=True
    )
    for number, i in enumerate(range(0, n, CHUNK)):
        rng = np.random.default_rng([1, number])
        count = min(CHUNK, n - i)
        which = rng.choice(CLUSTERS, size=CHUNK, p=shares / shares.sum())
        t = rng.uniform(-1.5, 1.5, (CHUNK, 1)).astype("f4")
        rows = shapes[0, which] + shapes[1, which] * t + shapes[2, which] * t**2
        rows += np.float32(0.25) * rng.standard_normal(rows.shape, dtype="f4")
        array[i : i + count] = rows[:count]
    beside.rename(path)


def made(folder: Path, n: int) -> Path:
    """Return the data of n samples, made in a process of its own if they are not there."""
    path = folder / f"curves-{n}.zarr"
    maker = Process(target=simulate, args=(path, n))
    maker.start()
    maker.join()
    if maker.exitcode != 0:
        raise RuntimeError(f"{path} could not be made")
    return path


# One tool, in a process of its own


def warm_up(model: Any) -> None:
    """Fit something small, so that what is loaded on first use is not counted, for any tool."""
    model.fit_transform(np.random.default_rng(0).standard_normal((200, 4)))


def worker(tool: str, data: Path, m: int, out: Path) -> None:
    """Fit and project with one tool; writes scores, prints JSON."""
    loading = 0.0
    if tool.startswith("streampca"):
        import dask

        import streampca

        seed = int(tool.rpartition("-")[2]) if "seed" in tool else 0
        warm_up(streampca.KernelPCA(2, n_landmarks=50))
        model = streampca.KernelPCA(K, gamma=GAMMA, n_landmarks=m, memory_limit=MEMORY, random_state=seed)
        started = time.perf_counter()
        with dask.config.set(num_workers=THREADS):
            scores = model.fit_transform(str(data))
        seconds = time.perf_counter() - started
        variances = model.explained_variance_
    else:
        from sklearn.decomposition import PCA
        from sklearn.kernel_approximation import Nystroem

        started = time.perf_counter()
        X = zarr.open_array(data, mode="r")[:]
        loading = time.perf_counter() - started
        warm_up(Nystroem(n_components=50))
        nystroem, pca = Nystroem(kernel="rbf", gamma=GAMMA, n_components=m, random_state=0), PCA(K)
        started = time.perf_counter()
        scores = pca.fit_transform(nystroem.fit_transform(X))
        seconds = time.perf_counter() - started
        variances = pca.explained_variance_
    peak = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1.024e-3
    np.save(f"{out}.scores.npy", np.asarray(scores))
    found = {"seconds": seconds, "loaded": seconds + loading, "megabytes": peak}
    print(json.dumps(found | {"variances": np.asarray(variances, float).tolist()}))


# All of them


def measure(tool: str, data: Path, m: int, folder: Path) -> dict[str, Any]:
    """Run one tool; returns what it found, with the seconds of the whole process."""
    out = folder / f"kernel.{tool}"
    if tool == "streampca-command":
        command = [sys.executable, "-m", "streampca", "kpca", str(data), "-k", str(K), "--gamma", str(GAMMA)]
        command += ["--n-landmarks", str(m), "--memory", MEMORY, "--threads", str(THREADS), "--out", f"{out}.zarr"]
        command += ["--overwrite", "--quiet", "--json"]
    else:
        command = [sys.executable, __file__, "--worker", tool, str(data), str(m), str(out)]
    env = os.environ | {f"{v}_NUM_THREADS": str(THREADS) for v in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    started = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    process = time.perf_counter() - started
    if done.returncode != 0:
        raise RuntimeError(f"{tool} failed:\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    if tool == "streampca-command":
        told = {
            "seconds": told["seconds"], "loaded": told["seconds"], "megabytes": told["peak_memory_bytes"] / 1e6,
            "kept": told["kept_trace"], "variances": told["explained_variance"],
        }  # fmt: skip
    return told | {"process": process}


def scores_of(tool: str, folder: Path) -> np.ndarray:
    out = folder / f"kernel.{tool}"
    if tool == "streampca-command":
        return np.asarray(zarr.open_array(f"{out}.zarr/scores", mode="r")[:])
    return np.load(f"{out}.scores.npy")


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines of the principal angles between two subspaces of scores, largest first."""
    bases = [np.linalg.qr(Z.astype("f8") - Z.mean(axis=0, dtype="f8"))[0] for Z in (first, second)]
    return np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)


def compare(folder: Path, small: bool, repeat: int) -> dict[str, Any]:
    """Measure every tool on the same data, and print the table."""
    n, m = SMALL_COMPARED if small else COMPARED
    data = made(folder, n)
    say(f"\n{n:,} x {D} float32, chunks {CHUNK:,} x {D}, k = {K}, {m} landmarks, rbf gamma = {GAMMA:g}")
    say(f"{THREADS} threads, --memory {MEMORY}; ratios to streampca, the fastest of {repeat}")
    columns = f"{'seconds':>9}{'ratio':>7}{'+ load':>9}{'ratio':>7}{'process':>9}{'ratio':>7}{'peak MB':>9}"
    say(f"{'tool':<20}{columns}   cosines (mean, least)   variances")
    rows: dict[str, Any] = {}
    for tool in TOOLS:
        row = rows[tool] = min((measure(tool, data, m, folder) for _ in range(repeat)), key=lambda r: r["process"])
        first = rows["streampca"]
        times = "".join(f"{row[c]:9.2f}{row[c] / first[c]:7.2f}" for c in ("seconds", "loaded", "process"))
        angles = cosines(scores_of("streampca", folder), scores_of(tool, folder))
        row["cosines"] = [float(angles.mean()), float(angles.min())]
        ratio = np.array(row["variances"]) / np.array(first["variances"])
        row["variance_ratio"] = [float(ratio.min()), float(ratio.max())]
        shown = ", ".join(f"{cosine:.5f}" for cosine in row["cosines"])
        say(f"{tool:<20}{times}{row['megabytes']:9.0f}   {shown}      {ratio.min():.4f} to {ratio.max():.4f}")
    say(f"landmarks keep {rows['streampca-command']['kept']:.2%} of the trace of the kernel")
    return {"shape": [n, D], "landmarks": m, "tools": rows}


def large(folder: Path, small: bool) -> dict[str, Any]:
    """Run the command on data larger than its limit."""
    n, m = SMALL_LARGE if small else LARGE
    data = made(folder, n)
    row = measure("streampca-command", data, m, folder)
    say(f"\n{n:,} x {D} float32, {4 * n * D / 1e6:.0f} MB, {m} landmarks, --memory {MEMORY}, scores on disk")
    rate = n / row["process"]
    say(f"{row['process']:.1f} s, {rate:,.0f} samples a second, peak {row['megabytes']:.0f} MB")
    return {"shape": [n, D], "landmarks": m, **row}


def scaling(folder: Path, small: bool, repeat: int) -> dict[str, Any]:
    """Fit the exponent of seconds over samples."""
    counts, m = (SMALL_SCALING if small else SCALING), (SMALL_COMPARED if small else COMPARED)[1]
    say(f"\nseconds of fit and scores, {m} landmarks, the fastest of {repeat}")
    seconds = []
    for n in counts:
        data = made(folder, n)
        rows = [measure("streampca", data, m, folder) for _ in range(repeat)]
        row = min(rows, key=lambda r: r["seconds"])
        seconds.append(row["seconds"])
        say(f"{n:>12,}{row['seconds']:9.2f} s{1e6 * row['seconds'] / n:9.2f} us a sample{row['megabytes']:9.0f} MB")
    exponent = float(np.polyfit(np.log(counts), np.log(seconds), 1)[0])
    say(f"seconds grow as n^{exponent:.2f}; from the last two sizes n^{np.log2(seconds[-1] / seconds[-2]):.2f}")
    return {"counts": counts, "seconds": seconds, "exponent": exponent, "landmarks": m}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--small", action="store_true", help="small data, to try the script")
    parser.add_argument("--large", action="store_true", help="data larger than the limit, streampca alone")
    parser.add_argument("--scaling", action="store_true", help="how seconds grow with samples")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each tool; the fastest counts")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        tool, data, m, out = arguments.worker
        worker(tool, Path(data), int(m), Path(out))
        return
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kernel.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    end = "-small" if arguments.small else ""
    if arguments.large:
        content["large" + end] = large(folder, arguments.small)
    if arguments.scaling:
        content["scaling" + end] = scaling(folder, arguments.small, arguments.repeat)
    if not (arguments.large or arguments.scaling):
        content["compared" + end] = compare(folder, arguments.small, arguments.repeat)
    path.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()

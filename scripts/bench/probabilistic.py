"""Benchmark of probabilistic PCA and factor analysis, against scikit-learn and the packages on PyPI that run.

Arrays in memory, so that all can hold them: complete, with gaps, and for factor analysis. Each tool fits in a process
of its own, with two threads; the clock runs for the fit alone. What it found is judged by one piece of code: the
log-likelihood of the values that are there, per value, less that of streampca. Then genotypes larger than the memory
limit, with a batch that misses more than others: what a sweep of EM takes beside one of PCA in the same run, and how
much of the batch shows in the components. Results go to FOLDER/ppca.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from measuring import THREADS, say

LIMIT_SECONDS = 120
K = 10
# samples, features, share of missing values; the small ones try the script.
CASES = {"complete": (20_000, 500, 0.0), "gaps": (20_000, 200, 0.2), "factors": (20_000, 500, 0.0)}
SMALL_CASES = {"complete": (2_000, 60, 0.0), "gaps": (2_000, 40, 0.2), "factors": (2_000, 60, 0.0)}
GENOTYPES = (20_000, 200_000)
SMALL_GENOTYPES = (1_000, 20_000)
# Share of the samples in the batch, and what these and the others miss: 2% in all.
BATCH = (0.05, 0.35, 0.003)
# Packages on PyPI, each with the name that it is imported by; two of them share one.
PEERS = {"ppca-rs": ("ppca_rs==0.5.1", "ppca_rs"), "ppca-py": ("ppca-py==1.0.4", "ppca"),
         "pyppca": ("pyppca==0.0.4", "pyppca"), "ppca": ("ppca==0.0.4", "ppca")}  # fmt: skip
TOOLS = {
    "complete": ("streampca", "streampca-em", "scikit-learn", *PEERS),
    "gaps": ("streampca", "streampca-plain", *PEERS),
    "factors": ("streampca", "streampca-em", "scikit-learn", "scikit-learn-lapack"),
}


# One tool, in a process of its own


def simulate(case: str, small: bool) -> np.ndarray:
    """Return factors with noise; of each feature its own for factor analysis, all alike else."""
    n, d, missing = (SMALL_CASES if small else CASES)[case]
    rng = np.random.default_rng(1)
    W = rng.standard_normal((K, d)) * np.linspace(1.5, 0.3, K)[:, None]
    noise = rng.uniform(0.3, 3.0, d) if case == "factors" else 1.0
    X = rng.standard_normal((n, K)) @ W + rng.standard_normal((n, d)) * noise + 5 * rng.standard_normal(d)
    X[rng.random(X.shape) < missing] = np.nan
    return X


def fit(tool: str, case: str, X: np.ndarray) -> tuple[float, int, np.ndarray, np.ndarray, Any]:
    """Fit; returns seconds, iterations (0 if the tool does not say), W (d x k), mean and noise."""
    if tool.startswith("streampca"):
        import streampca

        kind = streampca.FactorAnalysis if case == "factors" else streampca.PPCA
        options: dict[str, Any] = {"method": "em"} if tool == "streampca-em" else {}
        if tool == "streampca-plain":
            options = {"accelerate": False, "max_iter": 1000}
        # numba loads its compiled loops on first use, as it would in any session.
        kind(2, **options).fit(np.where(np.eye(30, 8) > 0, np.nan if case == "gaps" else 0.0, X[:30, :8]))
        started = time.perf_counter()
        model = kind(K, **options).fit(X)
        seconds = time.perf_counter() - started
        W = model.components_.T
        if case != "factors":
            W = W * np.sqrt(model.explained_variance_ - model.noise_variance_)
        return seconds, model.n_iter_, W, model.mean_, model.noise_variance_
    if tool.startswith("scikit-learn"):
        from sklearn.decomposition import PCA, FactorAnalysis

        lapack = "lapack" if tool.endswith("lapack") else "randomized"
        model = FactorAnalysis(K, svd_method=lapack, max_iter=10_000) if case == "factors" else PCA(K)
        started = time.perf_counter()
        model.fit(X)
        seconds = time.perf_counter() - started
        if case == "factors":
            return seconds, model.n_iter_, model.components_.T, model.mean_, model.noise_variance_
        n = len(X)
        noise = model.noise_variance_ * (n - 1) / n
        W = model.components_.T * np.sqrt(model.explained_variance_ * (n - 1) / n - noise)
        return seconds, 0, W, model.mean_, noise
    return fit_peer(tool, X)


def fit_peer(tool: str, X: np.ndarray) -> tuple[float, int, np.ndarray, np.ndarray, Any]:
    """Fit with a package from PyPI, by its defaults; one that has no rule to stop goes on until it gains little."""
    package = importlib.import_module(PEERS[tool][1])
    started = time.perf_counter()
    if tool == "ppca-rs":
        data = package.Dataset(X)
        model, before, rounds = None, -np.inf, 0
        while rounds < 100:
            model = package.PPCATrainer(data).train(start=model, state_size=K, n_iters=10, quiet=True)
            rounds += 1
            now = model.llk(data)
            if now - before < 1e-7 * abs(now):
                break
            before = now
        seconds = time.perf_counter() - started
        return seconds, 10 * rounds, np.array(model.transform), np.array(model.mean), model.isotropic_noise**2
    if tool == "ppca-py":
        model = package.PPCA(n_components=K, random_state=0)
        model.fit(X)
        seconds = time.perf_counter() - started
        noise = float(model.noise_variance_)
        values, axes = np.linalg.eigh(np.array(model.get_covariance()) - noise * np.eye(X.shape[1]))
        W = axes[:, -K:] * np.sqrt(np.maximum(values[-K:], 0))
        return seconds, 0, W, np.array(model.mean_).ravel(), noise
    if tool == "pyppca":
        C, noise, mean, scores, _ = package.ppca(X, K, False)
        seconds = time.perf_counter() - started
        W = np.array(C).real * np.sqrt(np.maximum(np.array(scores).real.var(axis=0) - noise, 0))
        return seconds, 0, W, np.array(mean).ravel(), noise
    model = package.PPCA()
    model.fit(X.copy(), d=K)
    seconds = time.perf_counter() - started
    # It standardises, keeps axes and variances, and not the noise: that is what these leave.
    C, values = np.array(model.C), np.array(model.eig_vals).real
    noise = max((len(C) - values.sum()) / (len(C) - K), 1e-9)
    W = C * np.sqrt(np.maximum(values - noise, 0)) * model.stds[:, None]
    return seconds, 0, W, model.means, noise * model.stds**2


def likelihood(X: np.ndarray, W: np.ndarray, mean: np.ndarray, noise: Any) -> float:
    """Return the mean log-likelihood of the values that are there; every sample by itself."""
    psi = np.broadcast_to(np.asarray(noise, float), len(W))
    total, count = 0.0, 0
    for x in X:
        there = ~np.isnan(x)
        w, p, y = W[there], psi[there], (x - mean)[there]
        M = np.eye(W.shape[1]) + (w.T / p) @ w
        b = (w.T / p) @ y
        total -= 0.5 * (
            np.log(2 * np.pi * p).sum() + np.linalg.slogdet(M)[1] + (y**2 / p).sum() - b @ np.linalg.solve(M, b)
        )
        count += there.sum()
    return total / count


def worker(tool: str, case: str, small: bool) -> None:
    """Fit and judge one tool; prints JSON."""
    X = simulate(case, small)
    seconds, iterations, W, mean, noise = fit(tool, case, X)
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1000
    found = {"seconds": seconds, "iterations": iterations, "megabytes": peak}
    print(json.dumps(found | {"likelihood": likelihood(X, W, mean, noise)}))


# All of them


def install_peers(folder: Path) -> None:
    """Install each package into a folder of its own: two of them have the same name."""
    for name, (requirement, _) in PEERS.items():
        target = folder / "peers" / name
        if not target.exists():
            command = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--target",
                str(target),
                requirement,
            ]
            subprocess.run(command, check=False)


def measure(tool: str, case: str, folder: Path, small: bool) -> dict[str, Any]:
    """Run one tool; returns what it found, or how it failed."""
    env = os.environ | {f"{v}_NUM_THREADS": str(THREADS) for v in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON")}
    if tool in PEERS:
        env["PYTHONPATH"] = str(folder / "peers" / tool)
    command = [sys.executable, __file__, "--worker", tool, case, *(["--small"] if small else [])]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {LIMIT_SECONDS} s"}
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(case: str, folder: Path, small: bool) -> dict[str, Any]:
    """Measure every tool on one case, and print the table."""
    n, d, missing = (SMALL_CASES if small else CASES)[case]
    say(f"\n{case}: {n} x {d} float64, {missing:.0%} missing, k = {K}, {THREADS} threads")
    heads = f"{'tool':22}{'seconds':>9}{'ratio':>8}{'iterations':>12}{'peak MB':>9}"
    say(f"{heads}   log-likelihood a value, less streampca's")
    found: dict[str, Any] = {}
    for tool in TOOLS[case]:
        row = found[tool] = measure(tool, case, folder, small)
        if "failed" in row:
            say(f"{tool:22}{row['failed']}")
            continue
        # Streampca comes first.
        row["ratio"] = row["seconds"] / found["streampca"]["seconds"]
        row["short"] = found["streampca"]["likelihood"] - row["likelihood"]
        steps = row["iterations"] or "-"
        times = f"{row['seconds']:9.2f}{row['ratio']:8.1f}"
        say(f"{tool:22}{times}{steps!s:>12}{row['megabytes']:9.0f}   {-row['short']:.1e}")
    return found


def genotypes(folder: Path, small: bool) -> dict[str, Any]:
    """Compare sweeps of PCA and EM on genotypes with uneven gaps, and what of the batch shows in either."""
    import streampca
    from streampca.demos.simulate_genotypes import simulate_genotypes

    n, m = SMALL_GENOTYPES if small else GENOTYPES
    share, often, seldom = BATCH
    batch = np.random.default_rng(5).random(n) < share
    prefix = folder / f"gaps-{n}-{m}"
    if not Path(f"{prefix}.done").exists():
        simulate_genotypes(prefix, n, m, missing=np.where(batch, often, seldom))
        Path(f"{prefix}.done").touch()
    population = np.array([line.split()[2] for line in Path(f"{prefix}.pop").read_text().splitlines()])
    rows: dict[str, Any] = {}
    say(f"\ngenotypes: {n} x {m}, {np.where(batch, often, seldom).mean():.1%} missing, k = {K}, 800MB")
    for name in ("pca", "ppca"):
        out = folder / f"{prefix.name}.{name}.zarr"
        command = [sys.executable, "-m", "streampca", name, f"{prefix}.bed", "-k", str(K), "--memory", "800MB"]
        command += ["--threads", str(THREADS), "--out", str(out), "--overwrite", "--quiet", "--json"]
        started = time.perf_counter()
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        result = streampca.load(out)
        rows[name] = {
            "seconds": time.perf_counter() - started, "megabytes": told["peak_memory_bytes"] / 1e6,
            "sweeps": told["n_sweeps"], "sweep_seconds": json.loads(result.attrs["sweep_seconds"]),
            "batch": shown(result["scores"].values, population, batch),
            "reach": reach(result["scores"].values[:, :3], population, batch),
        }  # fmt: skip
        rows[name]["iterations"] = told.get("n_iterations", 0)
    steps = rows["ppca"]["iterations"]
    em = float(np.median(rows["ppca"]["sweep_seconds"][-steps:]))
    plain = float(np.median(rows["ppca"]["sweep_seconds"][: -steps - 1]))
    rows["ratio"] = em / plain
    say(f"a sweep of EM takes {em:.2f} s, one of PCA before it {plain:.2f} s: {em / plain:.2f} times")
    for name in ("pca", "ppca"):
        row = rows[name]
        say(
            f"{name}: {row['seconds']:.1f} s, {row['sweeps']} sweeps, {row['megabytes']:.0f} MB; of the variance "
            f"within populations, the batch explains {max(row['batch']):.1%} of the worst component, and lies at "
            f"{row['reach']:.3f} of the distance of the others from the centre"
        )
    return rows


def shown(scores: np.ndarray, population: np.ndarray, batch: np.ndarray) -> list[float]:
    """Return the share of the variance within populations of each component that the batch explains."""
    within, between = np.zeros(scores.shape[1]), np.zeros(scores.shape[1])
    for name in np.unique(population):
        group = population == name
        centred = scores[group] - scores[group].mean(axis=0)
        within += (centred**2).sum(axis=0)
        for part in (batch[group], ~batch[group]):
            if part.any():
                between += part.sum() * centred[part].mean(axis=0) ** 2
    return (between / within).tolist()


def reach(scores: np.ndarray, population: np.ndarray, batch: np.ndarray) -> float:
    """Return how far the batch of a population lies from the centre, beside its others; the mean over populations."""
    ratios = []
    for name in np.unique(population):
        group = population == name
        if batch[group].any() and not batch[group].all():
            means = [scores[group & part].mean(axis=0) for part in (batch, ~batch)]
            ratios.append(np.linalg.norm(means[0]) / np.linalg.norm(means[1]))
    return float(np.mean(ratios))


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("bench-output"))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="complete,gaps,factors,genotypes")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(*arguments.worker, arguments.small)
        return
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    install_peers(folder)
    path = folder / "ppca.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    for case in arguments.only.split(","):
        found = genotypes(folder, arguments.small) if case == "genotypes" else compare(case, folder, arguments.small)
        content[case + ("-small" if arguments.small else "")] = found
        path.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()

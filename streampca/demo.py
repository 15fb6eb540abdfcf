"""Demonstrations: small stories that run anywhere, each with a picture at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from streampca.budget import memory_limit, show_bytes
from streampca.errors import InputError
from streampca.models.components import Request
from streampca.plots import draw_digits, draw_overview, draw_planes
from streampca.progress import Progress
from streampca.results import load, pca_to_store, writing
from streampca.simulate import simulate_groups
from streampca.sources import open_source

N_FEATURES = 2_000
N_COMPONENTS = 12
# Share of the values that the demonstration of missing values takes away.
REMOVED = 0.2


def demo_groups(folder: Path, memory: str, progress: Progress, say: Callable[[str], None]) -> Path:
    """Simulate groups in a matrix larger than the memory limit, find its components, draw them; returns the picture."""
    limit = memory_limit(memory)
    n_samples = int(1.5 * limit / (4 * N_FEATURES))
    data, result, picture = folder / "groups.zarr", folder / "groups.pca.zarr", folder / "groups.png"
    size = show_bytes(4.0 * n_samples * N_FEATURES)
    say(f"Simulating {n_samples} samples x {N_FEATURES} features, {size}, in {data}")
    with writing(data, overwrite=True) as store:
        groups = simulate_groups(store, n_samples, N_FEATURES, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {show_bytes(limit)} of memory")
    request = Request(N_COMPONENTS, memory=memory, progress=progress)
    pca_to_store(open_source(str(data)), request, result, True, {"n_components": N_COMPONENTS, "memory": memory})
    title = f"{n_samples:,} samples x {N_FEATURES:,} features, {size} in {show_bytes(limit)} of memory"
    draw_overview(load(result), picture, groups, title)
    return picture


def demo_genotypes(folder: Path, memory: str, progress: Progress, say: Callable[[str], None]) -> Path:
    """Simulate populations that split and mix, find the components of their genotypes, draw them."""
    from streampca.simulate_genotypes import BRANCHES, simulate_genotypes

    n_samples, n_variants = 3_000, 60_000
    prefix, result, picture = folder / "genotypes", folder / "genotypes.pca.zarr", folder / "genotypes.png"
    if Path(f"{prefix}.bed").exists() and not Path(f"{prefix}.pop").exists():
        raise InputError(f"{prefix}.bed: was not simulated here, and will not be overwritten; choose another --out")
    say(f"Simulating {n_samples} samples of {np.prod(BRANCHES)} populations x {n_variants} variants, in {prefix}.bed")
    population = simulate_genotypes(prefix, n_samples, n_variants, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {memory} of memory")
    request = Request(N_COMPONENTS, memory=memory, progress=progress)
    pca_to_store(open_source(prefix), request, result, True, {"n_components": N_COMPONENTS, "memory": memory})
    title = f"{n_samples:,} samples x {n_variants:,} variants: {BRANCHES[0]} continents, a fifth of the people admixed"
    draw_overview(load(result), picture, population // int(np.prod(BRANCHES[1:])), title)
    return picture


def demo_digits(folder: Path, say: Callable[[str], None]) -> Path:
    """Draw mean, components, J(m) and reconstructions of scikit-learn's digits; returns the picture."""
    from sklearn.datasets import load_digits

    from streampca.models.pca import PCA

    images = load_digits().images
    X = images.reshape(len(images), -1)
    model = PCA().fit(X)
    curve = model.reconstruction_curve()
    reached = int(np.argmax(curve <= 0.1 * curve[0]))
    say(f"{len(X)} digits of 8 x 8: {reached} of {X.shape[1]} components explain 90% of the variance")
    first = images[:10]
    reconstructions = {}
    for m in (2, 8, 21, 40):
        few = PCA(n_components=m).fit(X)
        reconstructions[m] = few.inverse_transform(few.transform(X[:10])).reshape(first.shape)
    picture = folder / "digits.png"
    draw_digits(first, model.mean_.reshape(8, 8), model.components_.reshape(-1, 8, 8), curve, reconstructions, picture)
    return picture


def demo_missing(folder: Path, table: Path | None, say: Callable[[str], None]) -> Path:
    """Remove a fifth of the values of a small table, and draw the plane before and after; returns the picture.

    After Tipping & Bishop (1999), section 4.1, who did so with Ripley's 38 tobamoviruses. Their table is not part of
    this package; give it as a file of numbers, or see the same of the wines that come with scikit-learn.
    """
    from streampca.models.pca import PCA
    from streampca.models.ppca import PPCA

    X, groups, name = _small_table(table)
    removed = np.where(np.random.default_rng(0).random(X.shape) < REMOVED, np.nan, X)
    whole, partial = PPCA(2, scale="unit"), PPCA(2, scale="unit", tol=1e-5)
    first, second = whole.fit_transform(X), partial.fit_transform(removed)
    filled = PCA(2, scale="unit", missing="mean", whiten=True).fit_transform(removed)
    deviations = partial.result_["score_deviation"].values
    planes: dict[str, tuple[np.ndarray, np.ndarray | None]] = {"all values": (first, None)}
    for what, points, widths in (
        (f"{np.isnan(removed).mean():.0%} removed, PPCA by EM", second, deviations),
        (f"{np.isnan(removed).mean():.0%} removed, at the mean, PCA", filled, None),
    ):
        turned, likeness = _turned(points, first)
        planes[f"{what}: r = {likeness:.3f}"] = (turned, widths)
        say(f"{what}: correlation with the plane of all values {likeness:.3f}")
    picture = folder / "missing.png"
    draw_planes(planes, groups, picture, f"{name}: {X.shape[0]} samples x {X.shape[1]} features")
    return picture


def _small_table(path: Path | None) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Return a table of numbers, groups of its rows if known, and its name."""
    if path is None:
        from sklearn.datasets import load_wine

        wine = load_wine()
        return wine.data, wine.target, "scikit-learn's wines"
    try:
        lines = [line.replace(",", " ").split() for line in path.read_text().splitlines() if line.strip()]
        first = 0 if all(_is_number(cell) for cell in lines[0]) else 1
        X = np.array([[float(cell) for cell in line] for line in lines[first:]])
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not a table of numbers, one sample in each line ({error})") from error
    if X.ndim != 2 or min(X.shape) < 4:
        raise InputError(f"{path}: a table of 4 x 4 or more is needed, got {' x '.join(map(str, X.shape))}")
    return X, None, path.stem


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _turned(points: np.ndarray, like: np.ndarray) -> tuple[np.ndarray, float]:
    """Return points turned to lie like others (Procrustes), and the correlation of the two then."""
    U, _, Vt = np.linalg.svd(points.T @ like)
    turned = points @ (U @ Vt)
    return turned, float(np.corrcoef(turned.ravel(), like.ravel())[0, 1])

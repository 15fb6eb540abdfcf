"""The story of missing values: a small table before and after a fifth of it is removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streampca.demos.base import Teller
from streampca.errors import InputError
from streampca.models.ppca.options import PPCAOptions
from streampca.report.plots import draw_planes
from streampca.results.fit import fit_to_store

# Share of the values that is taken away.
REMOVED = 0.2


def demo_missing(teller: Teller) -> list[Path]:
    """Remove a fifth of the values of a small table, and draw the plane before and after.

    After Tipping & Bishop (1999), section 4.1, who did so with Ripley's 38 tobamoviruses. Their table is not part of
    this package; give it as a file of numbers, or see the same of the wines that come with scikit-learn.
    """
    from streampca.models.pca.estimator import PCA
    from streampca.models.ppca.estimator import PPCA

    X, groups, name = _small_table(teller.table)
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
        teller.say(f"{what}: correlation with the plane of all values {likeness:.3f}")
    picture, result = teller.folder / "missing.png", teller.folder / "missing.ppca.zarr"
    draw_planes(planes, groups, picture, f"{name}: {X.shape[0]} samples x {X.shape[1]} features")
    source = teller.store("missing", removed, ("feature",), groups)
    fit_to_store(PPCAOptions(n_components=2, scale="unit", tol=1e-5), source, result)
    return [picture, teller.page(result, f"{name}, {REMOVED:.0%} removed")]


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

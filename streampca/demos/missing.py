"""Missing values: the plane of a small table before and after a fifth of its values is removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
from sklearn.datasets import load_wine

from streampca._typing import Array
from streampca.demos.base import Demo
from streampca.errors import InputError
from streampca.models.pca.estimator import PCA
from streampca.models.ppca.estimator import PPCA
from streampca.models.ppca.options import PPCAOptions
from streampca.report.printing import Scatter, draw_items
from streampca.results.fit import fit_to_store

REMOVED = 0.2  # share of the values that are removed


def demo_missing(demo: Demo) -> list[Path]:
    """Remove a fifth of the values of a small table, and draw the plane before and after.

    After Tipping & Bishop (1999), section 4.1, who used Ripley's 38 tobamoviruses. Their table is not part of this
    package; give it as a file of numbers. The default is scikit-learn's wines.
    """
    X, groups, name = _small_table(demo.table)
    removed = np.where(np.random.default_rng(0).random(X.shape) < REMOVED, np.nan, X)
    ppca = PPCA(2, scale="unit", tol=1e-5)
    complete, by_ppca = PPCA(2, scale="unit").fit_transform(X), ppca.fit_transform(removed)
    by_pca = PCA(2, scale="unit", missing="mean", whiten=True).fit_transform(removed)
    colours = np.zeros(len(X), int) if groups is None else groups
    planes: list[tuple[str, Array, Array | None]] = [("all values", complete, None)]
    share = f"{np.isnan(removed).mean():.0%} removed"
    deviations = ppca.result_["score_deviation"].values
    for title, points, widths in ((f"{share}, PPCA by EM", by_ppca, deviations),
                                  (f"{share}, replaced by the mean, PCA", by_pca, None)):  # fmt: skip
        rotated, correlation = _rotated(points, complete)
        planes.append((f"{title}: r = {correlation:.3f}", rotated, widths))
        demo.echo(f"{title}: correlation with the plane of all values {correlation:.3f}")
    items = [
        Scatter(points, title, "score 1", "score 2", colours, annotate="points", equal=True,
                ellipses=None if widths is None else (np.arange(len(points)), widths))
        for title, points, widths in planes
    ]  # fmt: skip
    picture, result = demo.folder / "missing.png", demo.folder / "missing.ppca.zarr"
    draw_items([items], picture, f"{name}: {X.shape[0]} samples x {X.shape[1]} features")
    source = demo.store("missing", removed, ("feature",), groups)
    fit_to_store(PPCAOptions(n_components=2, scale="unit", tol=1e-5), source, result)
    return [picture, demo.page(result, f"{name}, {REMOVED:.0%} removed")]


def _small_table(path: Path | None) -> tuple[Array, Array | None, str]:
    """Return a table of numbers, the groups of its rows if known, and its name."""
    if path is None:
        wine = load_wine()
        return wine.data, wine.target, "scikit-learn's wines"
    try:
        table = pandas.read_csv(path, sep=r"[,\s]+", engine="python", header=None, dtype=str)
        header = pandas.to_numeric(table.iloc[0], errors="coerce").isna().any()
        X = table[int(header) :].astype(float).to_numpy()
    except ValueError as error:
        raise InputError(f"{path}: is not a table of numbers with one sample per line ({error})") from error
    if min(X.shape) < 4:
        raise InputError(f"{path}: the table must be 4 x 4 or larger, got {' x '.join(map(str, X.shape))}")
    return X, None, path.stem


def _rotated(points: Array, target: Array) -> tuple[Array, float]:
    """Return points rotated onto a target (Procrustes), and the correlation of the two."""
    U, _, Vt = np.linalg.svd(points.T @ target)
    rotated = points @ (U @ Vt)
    return rotated, float(np.corrcoef(rotated.ravel(), target.ravel())[0, 1])

"""Kernel PCA: curved data become linear, and digits lose their noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits, make_circles, make_swiss_roll
from sklearn.linear_model import LinearRegression, LogisticRegression

from streampca._typing import Array
from streampca.demos.base import Demo
from streampca.models.kernel_pca.estimator import KernelPCA
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.pca.estimator import PCA
from streampca.report.images import image_rows
from streampca.report.printing import Scatter, draw_items
from streampca.results.fit import fit_to_store

NOISE = 4.0  # standard deviation of the noise added to digits of 0 to 16
GAMMAS, COUNTS = (0.0005, 0.001), (200, 400)  # candidates of kernel PCA
Echo = Callable[[str], None]


def demo_kernel(demo: Demo) -> list[Path]:
    """Draw curved data before and after kernel PCA, and noisy digits denoised by it."""
    curves, digits, result = (demo.folder / name for name in ("kernel.png", "denoising.png", "circles.kpca.zarr"))
    X, circle = make_circles(1000, factor=0.3, noise=0.05, random_state=0)
    draw_items([_circles(X, circle, demo.echo), _roll(demo.echo)], curves)
    title = f"Noise of standard deviation {NOISE:g} on digits of 0 to 16"
    draw_items([[image_rows(_denoised(demo.echo), ink=True, title=title)]], digits)
    source = demo.store("circles", X, ("feature",), circle)
    fit_to_store(KernelPCAOptions(n_components=2, gamma=3.0, n_landmarks=100), source, result)
    return [curves, digits, demo.page(result, "Two circles")]


def _plane(points: Array, title: str, values: Array, name: str = "score ") -> Scatter:
    return Scatter(points[:, :2], title, f"{name}1", f"{name}2", values, annotate="", equal=True)


def _circles(X: Array, circle: Array, echo: Echo) -> list[Scatter]:
    """Return two circles and their scores, with the accuracy of a linear classifier."""
    planes = [_plane(X, "two circles: 1,000 points", circle, "x")]
    for name, model in (("PCA", PCA(2)), ("kernel PCA (rbf)", KernelPCA(2, gamma=3.0, n_landmarks=100))):
        Z = model.fit_transform(X)
        accuracy = LogisticRegression().fit(Z, circle).score(Z, circle)
        echo(f"two circles, {name}: a linear classifier gets {accuracy:.1%} of the points right")
        planes.append(_plane(Z, f"{name}: a linear classifier gets {accuracy:.0%} right", circle))
    return planes


def _roll(echo: Echo) -> list[Scatter]:
    """Return a Swiss roll seen from its end and its scores, with R² of the position along it.

    Kernel PCA does not flatten the roll: the plane of the first two scores is still bent. But the position is nearly
    linear in ten scores, which it is not in the points.
    """
    X, position = make_swiss_roll(1500, noise=0.3, random_state=0)
    X = X[:, [0, 2]]
    planes = [_plane(X, "Swiss roll: 1,500 points", position, "x")]
    for name, model in (("PCA", PCA(2)), ("kernel PCA (rbf)", KernelPCA(10, gamma=0.07, n_landmarks=100))):
        Z = model.fit_transform(X)
        explained = []
        for k in sorted({2, Z.shape[1]}):
            # Fitted to every second point, scored on the others.
            regression = LinearRegression().fit(Z[::2, :k], position[::2])
            explained.append(f"{regression.score(Z[1::2, :k], position[1::2]):.2f} from {k} scores")
        echo(f"Swiss roll, {name}: R² of the position along it by linear regression {', '.join(explained)}")
        planes.append(_plane(Z, f"{name}: position along the roll\nR² = {', '.join(explained)}", position))
    return planes


def _denoised(echo: Echo) -> dict[str, Array]:
    """Return ten digits: original, noisy, and denoised by each method, with the error on all digits.

    Models are fitted to half of scikit-learn's digits without noise. Their parameters are chosen on a third of the
    other half, and their error is measured on the rest. After Mika et al. (1999), NIPS 11.
    """
    rng = np.random.default_rng(0)
    X, digit = load_digits(return_X_y=True)
    train, validation, test = np.split(rng.permutation(len(X)), [len(X) // 2, len(X) // 2 + len(X) // 6])
    noisy = X + NOISE * rng.standard_normal(X.shape)
    methods = {"PCA": _projections(X[train])}
    for name, ridge in (("kernel PCA, fixed point", False), ("kernel PCA, ridge map", True)):
        models = [KernelPCA(k, gamma=gamma, fit_inverse_transform=ridge) for gamma in GAMMAS for k in COUNTS]
        methods[name] = {f"k = {m.n_components}, gamma = {m.gamma:g}": m.fit(X[train]).denoise for m in models}
    rows = {"original": X[test], f"noisy\nMSE {_mse(noisy[test], X[test]):.1f}": noisy[test]}
    for name, candidates in methods.items():
        errors = {setting: _mse(denoise(noisy[validation]), X[validation]) for setting, denoise in candidates.items()}
        best = min(errors, key=lambda setting: errors[setting])
        clean = candidates[best](noisy[test])
        error = _mse(clean, X[test])
        echo(f"digits with noise of standard deviation {NOISE:g}, {name}: mean squared error {error:.2f} with {best}")
        rows[f"{name}\n{best.partition(',')[0]}, MSE {error:.1f}"] = clean
    # The first of each digit.
    shown = [int(np.flatnonzero(digit[test] == number)[0]) for number in range(10)]
    return {name: np.clip(samples[shown], 0, 16).reshape(-1, 8, 8) for name, samples in rows.items()}


def _projections(X: Array) -> dict[str, Callable[[Array], Array]]:
    """Return, for each number of principal components of X, the projection of samples on them."""
    model = PCA().fit(X)

    def onto(V: Array) -> Callable[[Array], Array]:
        return lambda samples: (samples - model.mean_) @ V.T @ V + model.mean_

    return {f"k = {k}": onto(model.components_[:k]) for k in range(1, model.n_components_ + 1)}


def _mse(X: Array, Y: Array) -> float:
    """Return the mean squared error."""
    return float(np.mean((X - Y) ** 2))

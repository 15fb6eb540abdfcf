"""The story of kernels: curved data laid straight, and digits without their noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from streampca.demos.base import Teller
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.report.plots import draw_curves, draw_samples
from streampca.results.fit import fit_to_store

# Deviation of the noise that is put on digits of 0 to 16, and what kernel PCA may choose from to take it off.
NOISE = 4.0
GAMMAS, COUNTS = (0.0005, 0.001), (200, 400)


def demo_kernel(teller: Teller) -> list[Path]:
    """Draw curved data before and after kernel PCA, and noisy digits denoised by it."""
    folder, say = teller.folder, teller.say
    curves, digits, result = folder / "kernel.png", folder / "denoising.png", folder / "circles.kpca.zarr"
    rows = {"two circles": _circles(say), "Swiss roll": _roll(say)}
    draw_curves(rows, curves)
    draw_samples(_denoised(say), digits, f"Noise of deviation {NOISE:g} on digits of 0 to 16")
    circle, planes = rows["two circles"]
    source = teller.store("circles", next(iter(planes.values())), ("feature",), circle)
    fit_to_store(KernelPCAOptions(n_components=2, gamma=3.0, n_landmarks=100), source, result)
    return [curves, digits, teller.page(result, "Two circles")]


def _circles(say: Callable[[str], None]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the circle of each point of two, and points and scores by what they show."""
    from sklearn.datasets import make_circles
    from sklearn.linear_model import LogisticRegression

    from streampca.models.kernel_pca.estimator import KernelPCA
    from streampca.models.pca.estimator import PCA

    X, circle = make_circles(1000, factor=0.3, noise=0.05, random_state=0)
    planes = {"1,000 points": X}
    for name, model in (("PCA", PCA(2)), ("kernel PCA (rbf)", KernelPCA(2, gamma=3.0, n_landmarks=100))):
        Z = model.fit_transform(X)
        share = LogisticRegression().fit(Z, circle).score(Z, circle)
        say(f"two circles, {name}: a straight line puts {share:.1%} of the points on the right side")
        planes[f"{name}: a line has {share:.0%} on the right side"] = Z
    return circle, planes


def _roll(say: Callable[[str], None]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the position of each point along a Swiss roll seen from its end, and points and scores by what they show.

    Kernel PCA does not lay the roll out flat: in the plane of the first two scores it is still bent. But the position
    is nearly a linear function of ten scores, which it is not of the points.
    """
    from sklearn.datasets import make_swiss_roll
    from sklearn.linear_model import LinearRegression

    from streampca.models.kernel_pca.estimator import KernelPCA
    from streampca.models.pca.estimator import PCA

    X, position = make_swiss_roll(1500, noise=0.3, random_state=0)
    X = X[:, [0, 2]]
    planes = {"1,500 points": X}
    for name, model in (("PCA", PCA(2)), ("kernel PCA (rbf)", KernelPCA(10, gamma=0.07, n_landmarks=100))):
        Z = model.fit_transform(X)
        explained = {}
        for k in sorted({2, Z.shape[1]}):
            # Learnt from every second point, judged by the others.
            line = LinearRegression().fit(Z[::2, :k], position[::2])
            explained[k] = float(line.score(Z[1::2, :k], position[1::2]))
        told = ", ".join(f"{share:.2f} from {k} scores" for k, share in explained.items())
        say(f"Swiss roll, {name}: R2 of the position along it by linear regression {told}")
        planes[f"{name}: position along the roll\n$R^2$ = {told}"] = Z[:, :2]
    return position, planes


def _denoised(say: Callable[[str], None]) -> dict[str, np.ndarray]:
    """Return ten digits as they were, with noise, and without it again, by how well it was taken off all of them.

    Models are fitted to half of scikit-learn's digits, without noise. What each keeps is chosen by a third of the other
    half, and judged by the rest. After Mika et al. (1999), NIPS 11.
    """
    from sklearn.datasets import load_digits

    from streampca.models.kernel_pca.estimator import KernelPCA

    rng = np.random.default_rng(0)
    X, digit = load_digits(return_X_y=True)
    fitted, chosen, judged = np.split(rng.permutation(len(X)), [len(X) // 2, len(X) // 2 + len(X) // 6])
    noisy = X + NOISE * rng.standard_normal(X.shape)
    ways = {"PCA": _projections(X[fitted])}
    for name, ridge in (("kernel PCA, fixed point", False), ("kernel PCA, ridge map", True)):
        models = [KernelPCA(k, gamma=gamma, fit_inverse_transform=ridge) for gamma in GAMMAS for k in COUNTS]
        ways[name] = {f"k = {m.n_components}, gamma = {m.gamma:g}": m.fit(X[fitted]).denoise for m in models}
    rows = {"original": X[judged], f"noisy\nMSE {_squared(noisy[judged], X[judged]):.1f}": noisy[judged]}
    for name, settings in ways.items():
        errors = {setting: _squared(way(noisy[chosen]), X[chosen]) for setting, way in settings.items()}
        best = min(errors, key=lambda setting: errors[setting])
        clean = settings[best](noisy[judged])
        error = _squared(clean, X[judged])
        say(f"digits with noise of deviation {NOISE:g}, {name}: mean squared error {error:.2f} with {best}")
        rows[f"{name}\n{best.partition(',')[0]}, MSE {error:.1f}"] = clean
    # One of each digit, the first of its kind.
    shown = [int(np.flatnonzero(digit[judged] == number)[0]) for number in range(10)]
    return {name: np.clip(samples[shown], 0, 16).reshape(-1, 8, 8) for name, samples in rows.items()}


def _projections(X: np.ndarray) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return, for each number of principal components of X, what projects samples on them."""
    from streampca.models.pca.estimator import PCA

    model = PCA().fit(X)

    def onto(V: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda samples: (samples - model.mean_) @ V.T @ V + model.mean_

    return {f"k = {k}": onto(model.components_[:k]) for k in range(1, model.n_components_ + 1)}


def _squared(X: np.ndarray, Y: np.ndarray) -> float:
    """Return the mean squared difference."""
    return float(np.mean((X - Y) ** 2))

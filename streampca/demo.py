"""Demonstrations: small stories that run anywhere, each with a picture at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from streampca.budget import memory_limit, show_bytes
from streampca.errors import InputError
from streampca.figures import draw_overview
from streampca.models.components import Request
from streampca.plots import draw_curves, draw_digits, draw_map, draw_planes, draw_samples
from streampca.progress import Progress
from streampca.results import load, pca_to_store, writing
from streampca.simulate import simulate_groups
from streampca.sources import open_source

N_FEATURES = 2_000
N_COMPONENTS = 12
# Share of the values that the demonstration of missing values takes away.
REMOVED = 0.2
# Deviation of the noise that is put on digits of 0 to 16, and what kernel PCA may choose from to take it off.
NOISE = 4.0
GAMMAS, COUNTS = (0.0005, 0.001), (200, 400)


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
    with writing(result, overwrite=True) as store:
        pca_to_store(open_source(str(data)), request, store, {"n_components": N_COMPONENTS, "memory": memory})
    title = f"{n_samples:,} samples x {N_FEATURES:,} features, {size} in {show_bytes(limit)} of memory"
    draw_overview(load(result), picture, np.array([f"group {group + 1}" for group in groups]), title)
    return picture


def demo_genotypes(folder: Path, memory: str, progress: Progress, say: Callable[[str], None]) -> Path:
    """Simulate people on a map, the more alike the nearer they live, and draw the map that their genotypes give.

    After Novembre et al. (2008), Nature 456, 98, who found the map of Europe in the genotypes of Europeans.
    """
    from scipy.spatial import procrustes

    from streampca.simulate_map import kilometres, simulate_map

    n_samples, n_variants = 3_000, 60_000
    prefix, result, picture = folder / "genotypes", folder / "genotypes.pca.zarr", folder / "genotypes.png"
    if Path(f"{prefix}.bed").exists() and not Path(f"{prefix}.pop").exists():
        raise InputError(f"{prefix}.bed: was not simulated here, and will not be overwritten; choose another --out")
    say(f"Simulating {n_samples} people on a map of Europe x {n_variants} variants, in {prefix}.bed")
    country, places = simulate_map(prefix, n_samples, n_variants, progress=progress)
    say(f"Finding {N_COMPONENTS} components with at most {memory} of memory")
    request = Request(N_COMPONENTS, memory=memory, progress=progress)
    with writing(result, overwrite=True) as store:
        pca_to_store(open_source(prefix), request, store, {"n_components": N_COMPONENTS, "memory": memory})
    true, found, apart = procrustes(kilometres(places), load(result)["scores"].values[:, :2])
    likeness = float(np.sqrt(1 - apart))
    say(f"PC1 and PC2 turned onto the map: Procrustes correlation {likeness:.3f}")
    title = f"{n_samples:,} people x {n_variants:,} variants: Procrustes correlation {likeness:.3f}"
    draw_map({"where people live": true, "PC1 and PC2 of their genotypes, turned": found}, country, picture, title)
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


def demo_kernel(folder: Path, say: Callable[[str], None]) -> tuple[Path, Path]:
    """Draw curved data before and after kernel PCA, and noisy digits denoised by it; returns both pictures."""
    curves, digits = folder / "kernel.png", folder / "denoising.png"
    rows = {"two circles": _circles(say), "Swiss roll": _roll(say)}
    draw_curves(rows, curves)
    draw_samples(_denoised(say), digits, f"Noise of deviation {NOISE:g} on digits of 0 to 16")
    return curves, digits


def _circles(say: Callable[[str], None]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the circle of each point of two, and points and scores by what they show."""
    from sklearn.datasets import make_circles
    from sklearn.linear_model import LogisticRegression

    from streampca.models.kernel_pca import KernelPCA
    from streampca.models.pca import PCA

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

    from streampca.models.kernel_pca import KernelPCA
    from streampca.models.pca import PCA

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

    from streampca.models.kernel_pca import KernelPCA

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
    from streampca.models.pca import PCA

    model = PCA().fit(X)

    def onto(V: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return lambda samples: (samples - model.mean_) @ V.T @ V + model.mean_

    return {f"k = {k}": onto(model.components_[:k]) for k in range(1, model.n_components_ + 1)}


def _squared(X: np.ndarray, Y: np.ndarray) -> float:
    """Return the mean squared difference."""
    return float(np.mean((X - Y) ** 2))


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

"""Pre-images: from scores in feature space back to samples, and denoising by them.

A point of feature space, mean + sum_i z_i v_i, is a sum of landmarks, sum_l c_l phi(l) with
c = weights z + mean_weights. It is rarely the image of an x; a pre-image is an x whose image is close to it:

- ridge regression of samples on scores, learnt in one sweep (Bakir, Weston & Schoelkopf 2004), for any kernel;
- the fixed point x = sum_l c_l k(x, l) l / sum_l c_l k(x, l) for rbf (Mika et al. 1999), from the landmarks alone;
- sum_l c_l l itself for the linear kernel, where it is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.solvers.kernel.kernels import Kernel
from streampca.solvers.kernel.nystrom import KernelSolution, eigenpairs, kernel_matrix
from streampca.sweep.matrix import FeatureMap
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Statistic
from streampca.sweep.sweep import Sweeps

if TYPE_CHECKING:
    from streampca.models.kernel_pca.record import KernelPCAFit


RESTORED_ROWS = 512  # rows that are scored or denoised at once, so that their features stay in the cache
MOST_ANCHORS = 1000  # landmarks that the ridge map is built on
SHORTEST_STEP = 1e-4  # the fixed point has converged after a shorter step, relative to the width of the kernel
MOST_STEPS = 200
LEAST_WEIGHT = 1e-9  # weights with a smaller sum, relative to their magnitudes, cancel: the sample is not moved


@dataclass(frozen=True)
class RidgeMap:
    """x = offset + k(z, anchors) weights, for an rbf kernel of scores z."""

    gamma: float
    anchors: Array
    weights: Array
    offset: Array

    def features(self, scores: Array) -> Array:
        """Return the kernel of scores (t x k) with the anchors, (t, q)."""
        return Kernel("rbf", self.gamma).values(scores, self.anchors.astype(scores.dtype, copy=False))

    def __call__(self, scores: Array) -> Array:
        """Return samples, centred and scaled as the inputs are, (t, d)."""
        return np.asarray(
            self.features(scores) @ self.weights.astype(scores.dtype, copy=False) + self.offset.astype(scores.dtype)
        )


@dataclass
class RidgeSums:
    """Sums of features' products with each other (q x q) and with the samples (q x d)."""

    gram: Array
    cross: Array

    def __add__(self, other: RidgeSums) -> RidgeSums:
        return RidgeSums(self.gram + other.gram, self.cross + other.cross)


@dataclass(frozen=True)
class RidgeStatistic(Statistic):
    """Sums that determine the ridge map."""

    scores: Callable[[Array], Array]
    ridge: RidgeMap

    def zero(self, n_full: int) -> RidgeSums:
        """Return empty sums."""
        q = len(self.ridge.anchors)
        return RidgeSums(np.zeros((q, q)), np.zeros((q, n_full)))

    def update(self, value: RidgeSums, A: Array, start: int) -> None:  # noqa: ARG002
        """Add the rows of A, in float64: a small penalty requires it."""
        features = self.ridge.features(self.scores(A).astype(np.float64))
        value.gram += features.T @ features
        value.cross += features.T @ (A - self.ridge.offset)


@dataclass(frozen=True)
class Scores:
    """Scores of rows of inputs: (features - centre) weights."""

    map: FeatureMap
    centre: Array
    weights: Array

    @classmethod
    def of(cls, map: FeatureMap, solution: KernelSolution, dtype: Any) -> Scores:
        """Return the map to scores of a type."""
        centre, weights = solution.projection
        return cls(map, centre.astype(dtype), weights.astype(dtype))

    @cached_property
    def _origin(self) -> Array:
        return np.asarray(self.centre.astype(np.float64) @ self.weights).astype(self.weights.dtype)

    def __call__(self, A: Array) -> Array:
        """Return the scores of the rows of A, (t, k)."""
        return np.asarray(self.map(A) @ self.weights - self._origin)


def fit_ridge(sweeps: Sweeps, map: FeatureMap, solution: KernelSolution, points: Array, alpha: float) -> RidgeMap:
    """Learn the map from scores to samples by ridge regression on anchors, the scores of some points; one sweep.

    alpha is the penalty relative to the sum over all samples, as in scikit-learn: K_nq'K_nq + alpha K_qq.
    """
    dtype = sweeps.matrix.dtype
    points = points[:MOST_ANCHORS].astype(dtype, copy=False)
    scores = Scores.of(map, solution, dtype)
    anchors = scores(points)
    gamma = _gamma_of(anchors.astype(np.float64))
    d = points.shape[1]
    ridge = RidgeMap(gamma, anchors, np.zeros((len(anchors), d)), points.mean(axis=0, dtype=np.float64))
    sums, _ = sweeps.run(RidgeStatistic(scores, ridge), "pre-images")
    # Solve in the span of the anchors, where the penalty is the identity.
    values, U = eigenpairs(kernel_matrix(Kernel("rbf", gamma), anchors))
    used = values > len(values) * np.finfo(np.float64).eps * values[-1]
    B = U[:, used] / np.sqrt(values[used])
    inner = B.T @ sums.gram @ B
    inner.flat[:: len(inner) + 1] += alpha
    weights = B @ np.linalg.solve(inner, B.T @ sums.cross)
    return RidgeMap(gamma, anchors, weights, ridge.offset)


def _gamma_of(anchors: Array) -> float:
    """Return 1 / (2 s^2) for the median distance s of anchors; s^2 is the mean square if most anchors coincide."""
    from scipy.spatial.distance import pdist  # loaded only if a ridge map is learnt

    squares = pdist(anchors, "sqeuclidean")
    spread = float(np.median(squares)) or float(np.mean(squares))
    return 1 / (2 * spread) if spread > 0 else 1.0


def check_invertible(fitted: KernelPCAFit) -> None:
    """Raise `InputError` if a model has no pre-images."""
    name = fitted.kernel.name
    if fitted.ridge is None and (fitted.fourier or name not in ("linear", "rbf")):
        raise InputError(
            f"kernel={name!r}{' with Fourier features' if fitted.fourier else ''} has no pre-image by itself: fit with "
            "fit_inverse_transform=True (--fit-inverse-transform)"
        )


def pre_images(fitted: KernelPCAFit, scores: Array, start: Array | None = None) -> Array:
    """Return samples, centred and scaled as the inputs are, whose images are close to the points with these scores.

    Parameters
    ----------
    start : (t, d) of the fixed point iteration; the best landmark by default.
    """
    if fitted.ridge is not None:
        return fitted.ridge(scores)
    check_invertible(fitted)
    assert fitted.mean_weights is not None
    points = fitted.points.astype(scores.dtype, copy=False)
    weights = scores @ fitted.weights.T.astype(scores.dtype) + fitted.mean_weights.astype(scores.dtype)
    if fitted.kernel.name == "linear":
        return np.asarray(weights @ points)
    if start is None:
        start = points[np.argmax(weights @ fitted.kernel.values(points, points), axis=1)]
    return fixed_point(fitted.kernel, points, weights, start)


def fixed_point(kernel: Kernel, points: Array, weights: Array, start: Array) -> Array:
    """Return x = sum_l c_l k(x, l) l / sum_l c_l k(x, l) for each row c of weights, by iteration from a start.

    Rows whose weights cancel are not moved.
    """
    x = np.array(start)
    active = np.arange(len(x))
    shortest = SHORTEST_STEP**2 / kernel.gamma
    prepared = kernel.prepared(points, x.dtype)
    for _ in range(MOST_STEPS):
        pull = kernel.with_prepared(x[active], prepared, np.empty((len(active), len(points)), x.dtype))
        pull *= weights[active]
        total = pull.sum(axis=1)
        sound = total > LEAST_WEIGHT * np.abs(pull).sum(axis=1)
        active, pull, total = active[sound], pull[sound], total[sound]
        moved = pull @ points / total[:, None]
        steps = np.square(moved - x[active]).sum(axis=1)
        x[active] = moved
        active = active[steps > shortest]
        if not len(active):
            break
    return x


@dataclass(frozen=True)
class KernelDenoiser:
    """Denoises rows of inputs: pre-images of their projections, in units of the data."""

    fitted: KernelPCAFit
    scores: Scores

    @classmethod
    def of(cls, fitted: KernelPCAFit, dtype: Any) -> KernelDenoiser:
        """Return a denoiser of tiles of a type."""
        ridge = fitted.ridge
        if ridge is not None:
            ridge = replace(ridge, anchors=ridge.anchors.astype(dtype), weights=ridge.weights.astype(dtype))
        fitted = replace(fitted, points=fitted.points.astype(dtype, copy=False), ridge=ridge)
        return cls(fitted, Scores.of(fitted.map, fitted, dtype))

    def __call__(self, A: Array) -> Array:
        """Return the rows of A, denoised."""
        return np.asarray(self.fitted.scaling.restore(pre_images(self.fitted, self.scores(A), A)).astype(A.dtype))


@dataclass(frozen=True)
class LinearDenoiser:
    """Denoises rows that are centred and scaled: their projection on the components (k x d), in units of the data."""

    components: Array
    scaling: Scaling

    def __call__(self, A: Array) -> Array:
        """Return the rows of A, denoised."""
        V = self.components.astype(A.dtype, copy=False)
        return np.asarray(self.scaling.restore((A @ V.T) @ V).astype(A.dtype))

"""Kernel PCA in the span of landmarks (Nystrom): linear PCA of phi(x) = K^(-1/2) k(x), for K = k(landmarks, landmarks).

The sweep sums k(x) itself, not phi(x): S = sum (k - mean k)(k - mean k)', which takes a third of the products, and
B = U L^(-1/2) from K = U L U' makes the covariance B'S B / (n - 1) of it afterwards. Rounding in S is magnified
by 1 / L, so eigenvalues L below a floor set by the type of the tiles are left out: a projection on fewer directions.

What the span misses is known exactly, k(x, x) - |phi(x)|^2 for each x. With `lost` its sum over n - 1, P the projection
on the span and C the covariance in feature space,

    lambda_i <= lambda_i(C) <= lambda_i + lost,      |C v - lambda v| = |(I - P) C v| <= sqrt(lambda lost)

for a unit vector v of the span with P C v = lambda v: C is positive, so |(I - P) C v|^2 <= v'C v |(I - P) C (I - P)|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from streampca.accumulators import Moments, Scatter, symmetric
from streampca.errors import InputError
from streampca.kernels import Kernel, LandmarkMap
from streampca.matrix import FeatureMatrix
from streampca.solvers.base import Wanted, is_null
from streampca.solvers.dense import leading_pairs
from streampca.sweeps import Sweeps

Array = NDArray[Any]

# Directions of the landmarks count if what they hold is so many times larger than the rounding in it.
ABOVE_ROUNDING = 30.0
# Float64 is used where float32 would leave out more than this share of the landmarks' own kernel, or blur a wanted
# component by more.
TOLERATED = 1e-3
# A kernel whose matrix has an eigenvalue further below zero than this, beside the largest, is none.
NEGATIVE = 1e-5
# Variance in feature space below this share of k(x, x) is rounding.
SMALLEST_SHARE = 1e-12


@dataclass(frozen=True)
class KernelSolution:
    """Leading components in feature space, as weights of the features of a map.

    Attributes
    ----------
    weights : (m, k): v_i = sum_l weights[l, i] phi(l), of unit length; scores are (features - centre) weights.
    centre : (m,) mean of each feature.
    mean_weights : (m,) the mean in feature space as a sum of landmarks; None for other maps.
    values : (k,) eigenvalues of the covariance in feature space (n - 1).
    certificate : (k,) bounds on |C v - lambda v| / lambda.
    total : variance in feature space, no less than it is.
    lost : what of it the span may miss, at most.
    kept : share of the kernel's trace, the sum of k(x, x), that lies in the span.
    rank : directions of the span that were used.
    advice : what to know or do.
    """

    weights: Array
    centre: Array
    mean_weights: Array | None
    values: Array
    certificate: Array
    total: float
    lost: float
    kept: float
    rank: int
    advice: str = ""


@dataclass(frozen=True)
class Span:
    """The span of landmarks: B (m x r) with B'K B = I, and the eigenvalues of K in it, descending."""

    B: Array
    smallest: float
    values: Array
    advice: str

    @classmethod
    def of(cls, K: Array, dtype: np.dtype[Any]) -> Span:
        """Return what K holds above the rounding of tiles of a type."""
        values, U = eigenpairs(K)
        if values[-1] <= 0:
            raise InputError(f"the kernel is not positive: the largest eigenvalue of its matrix is {values[-1]:.3g}")
        m, trace = len(K), float(values.sum())
        unit = float(np.finfo(dtype).eps) / 2
        floor = max(np.sqrt(ABOVE_ROUNDING * unit / m) * trace, 4 * m * np.finfo(np.float64).eps * values[-1])
        used = values > floor
        return cls(
            U[:, used] / np.sqrt(values[used]), float(values[used][0]), values[used][::-1], not_positive(values, K)
        )

    def blur(self, K: Array, dtype: np.dtype[Any]) -> float:
        """Return how much rounding in the sums can add to an eigenvalue of the covariance, about."""
        m = len(K)
        entries = float(np.square(K).mean())
        return float(np.finfo(dtype).eps / 2 * np.sqrt(m) * entries / self.smallest)

    def needs_float64(self, K: Array, k: int) -> bool:
        """Tell whether float32 tiles would lose too much, by the landmarks themselves."""
        single = np.dtype(np.float32)
        left_out = float(np.trace(K) - self.values.sum())
        spread = float(np.trace(K) - K.mean() * len(K))
        # The first eigenvalue is mostly that of the mean.
        expected = self.values[min(k, len(self.values) - 1)] / len(K)
        return left_out > TOLERATED * spread or self.blur(K, single) > TOLERATED * expected


def eigenpairs(K: Array) -> tuple[Array, Array]:
    """Return all eigenvalues of a symmetric matrix, ascending, and eigenvectors."""
    from scipy.linalg import eigh

    # SciPy brings a BLAS of its own, maybe only now.
    with threadpool_limits(1, user_api="blas"):
        values, U = eigh(K, check_finite=False)
    return values, U


def not_positive(values: Array, K: Array) -> str:
    """Say if a kernel matrix K, or what is left of it, has eigenvalues, ascending, that are clearly negative."""
    rounding = 16 * len(K) * np.finfo(np.float64).eps * float(np.abs(np.diagonal(K)).max())
    if values[0] >= -max(NEGATIVE * values[-1], rounding):
        return ""
    return (
        f"the kernel is not positive on these data (its matrix has the eigenvalue {values[0]:.3g} beside "
        f"{values[-1]:.3g}): what is negative is left out, and shares and certificates do not hold"
    )


def kernel_matrix(kernel: Kernel, landmarks: Array) -> Array:
    """Return k of all pairs of landmarks in float64, symmetric; refuse values that are no numbers."""
    points = landmarks.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        K = kernel.values(points, points)
    if not np.isfinite(K).all():
        raise InputError(
            f"the kernel ({kernel.name}) is infinite or no number on these data; scale them (scale='unit'), or lower "
            "gamma and degree"
        )
    return (K + K.T) / 2


def solve_exact(K: Array, k: int) -> KernelSolution:
    """Return the components from the kernel matrix of all samples, centred: no sweep."""
    n = len(K)
    centre = K.mean(axis=0)
    total = float(np.trace(K) - n * centre.mean()) / (n - 1)
    check_spread(total, float(np.trace(K)) / n)
    centred = K - centre[:, None] - centre[None, :] + centre.mean()
    values, U = eigenpairs(centred)
    advice = not_positive(values, K)
    values, U = np.maximum(values[::-1][:k], 0.0), U[:, ::-1][:, :k]
    null = is_null(values, n)
    weights = np.where(null, 0.0, U / np.sqrt(np.where(null, 1.0, values)))
    values = np.where(null, 0.0, values) / (n - 1)
    with np.errstate(divide="ignore"):
        certificate = np.where(null, np.inf, n * np.finfo(np.float64).eps * values[0] / values)
    return KernelSolution(
        weights, centre, np.full(n, 1 / n), values, certificate, total, 0.0, 1.0, n, joined(advice, _null_advice(null))
    )  # fmt: skip


def solve_nystrom(sweeps: Sweeps, kernel: Kernel, landmarks: Array, K: Array, span: Span, k: int) -> KernelSolution:
    """Return the components in a span of landmarks; one sweep over the matrix of inputs that `sweeps` has.

    Parameters
    ----------
    K : kernel matrix of the landmarks.
    """
    inputs = sweeps.matrix
    sweeps.matrix = FeatureMatrix.of(inputs, LandmarkMap(kernel, landmarks, with_diagonal=True))
    try:
        scatter, moments = sweeps.run(Scatter(), "kernel covariance", check=True)
    finally:
        sweeps.matrix = inputs
    assert moments is not None
    n = inputs.source.shape[0]
    check_finite(moments, kernel)
    # The last feature is k(x, x).
    S, centre = symmetric(scatter)[:-1, :-1], moments.mean[:-1]
    C = span.B.T @ S @ span.B
    C = (C + C.T) / (2 * (n - 1))
    in_span = float(np.trace(C))
    mean_length = float(np.square(span.B.T @ centre).sum())
    diagonal = float(moments.mean[-1])
    # Sums of what the span holds, and of what there is, over n - 1.
    whole = diagonal * n / (n - 1)
    lost = max(0.0, whole - in_span - mean_length * n / (n - 1))
    check_spread(in_span + lost, diagonal)
    rank = len(span.values)
    values, V, _ = leading_pairs(C, Wanted(min(k, rank), None, 1.0), in_span)
    blur = span.blur(K, inputs.dtype)
    null = np.concatenate(
        [values <= max(blur, 64 * np.finfo(np.float64).eps * values[0]), np.ones(k - len(values), bool)]
    )
    values = np.where(null, 0.0, np.concatenate([values, np.zeros(k - len(values))]))
    weights = np.zeros((len(K), k))
    weights[:, : V.shape[1]] = span.B @ V
    weights[:, null] = 0.0
    with np.errstate(divide="ignore"):
        certificate = np.where(null, np.inf, np.sqrt(lost / np.where(null, 1.0, values)) + blur / values)
    kept = min(1.0, 1 - lost / whole)
    mean_weights = span.B @ (span.B.T @ centre)
    return KernelSolution(
        weights, centre, mean_weights, values, certificate, in_span + lost, lost, kept, rank,
        joined(span.advice, _null_advice(null)),
    )  # fmt: skip


def check_finite(moments: Moments, kernel: Kernel) -> None:
    """Refuse kernel values that overflow."""
    if not (np.isfinite(moments.mean).all() and np.isfinite(moments.m2).all()):
        raise InputError(
            f"the kernel ({kernel.name}) overflows on these data; scale them (scale='unit'), or lower gamma and degree"
        )


def check_spread(total: float, diagonal: float) -> None:
    """Refuse a kernel that is the same for all pairs: there is nothing to find."""
    if total <= SMALLEST_SHARE * abs(diagonal):
        raise InputError(
            "the kernel is the same for all pairs of samples, to double precision: all samples are the same, or gamma "
            "is much too small (try gamma='median'); there is nothing to find"
        )


def joined(*advice: str) -> str:
    """Join what is to be said."""
    return "; ".join(part for part in advice if part)


def _null_advice(null: Array) -> str:
    if not null.any():
        return ""
    return (
        f"only {int((~null).sum())} components have a variance above rounding: the others are zero (samples that are "
        "the same, or more components than the kernel has directions here)"
    )

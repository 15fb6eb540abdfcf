"""Kernel PCA in the span of landmarks (Nystrom): linear PCA of phi(x) = K^(-1/2) k(x), for K = k(landmarks, landmarks).

The sweep sums the kernel, not phi(x): S = sum (z - mean z)(z - mean z)' for z(x) = [k(x) - r(x), r(x)], where r is the
mean of k(x) over the landmarks; this takes a third of the products. A matrix B with phi(x) = B'z(x) then gives the
covariance B'S B / (n - 1). B comes from the centred K = U L U', with 1 / sqrt(L), and one more direction for the mean
of the landmarks: a constant part of the kernel costs no digits. Rounding in S is magnified by 1 / L, so that directions
with L below a floor, which depends on the type of the tiles, are dropped.

The part of each x outside the span is known exactly, k(x, x) - |phi(x)|^2. With `lost` its sum divided by n - 1, P the
projection on the span and C the covariance in feature space,

    lambda_i <= lambda_i(C) <= lambda_i + lost,      |C v - lambda v| = |(I - P) C v| <= sqrt(lambda lost)

for a unit vector v of the span with P C v = lambda v: C is positive, so |(I - P) C v|^2 <= v'C v |(I - P) C (I - P)|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from streampca._typing import Array
from streampca.errors import InputError
from streampca.solvers.base import Wanted, is_null
from streampca.solvers.certificate import MARGIN, PROBES, UNIT, Probe, certify, chain_of, draw_probes
from streampca.solvers.dense import leading_pairs
from streampca.solvers.kernel.kernels import Kernel, LandmarkMap
from streampca.sweep.matrix import FeatureMatrix
from streampca.sweep.statistics import SCATTER_TILE_LENGTH, Probed, Scatter, Statistic, symmetric
from streampca.sweep.sweep import Sweeps

# Largest share of the variance that float32 may lose, and largest error of a component; above these, float64 is used.
TOLERATED = 1e-3
SPARE = 8  # additional components, in case some are rounding
LARGEST = 1e150  # kernel values above this cannot be squared and summed
SPURIOUS = 0.1  # largest rounding along the faintest direction, relative to the last component
NEGATIVE = 1e-5  # a kernel matrix with an eigenvalue below -NEGATIVE times the largest is not positive
SMALLEST_SHARE = 1e-12  # variance in feature space below this share of k(x, x) is rounding


@dataclass(frozen=True, kw_only=True)
class KernelSolution:
    """Leading components in feature space, as weights of the features of a map.

    Attributes
    ----------
    weights : (m, k): v_i = sum_l weights[l, i] phi(l), of unit length; scores are (k(x) - kernel_mean) weights.
    kernel_mean : (m,) mean of k(x), or of the features of another map.
    explained_variance : (k,) eigenvalues of the covariance in feature space (n - 1).
    certificate : (k,) bounds on |C v - lambda v| / lambda.
    total_variance : upper bound on the variance in feature space.
    rank : dimension of the span that was used.
    mean_weights : (m,) the mean in feature space as a sum of landmarks; None for other maps.
    lost_variance : upper bound on the variance outside the span of the landmarks; NaN for other maps.
    kept_trace : share of the kernel's trace, the sum of k(x, x), that lies in the span; NaN for other maps.
    advice : what to know or do.
    """

    weights: Array
    kernel_mean: Array
    explained_variance: Array
    certificate: Array
    total_variance: float
    rank: int
    mean_weights: Array | None = None
    lost_variance: float = math.nan
    kept_trace: float = math.nan
    advice: str = ""

    @property
    def projection(self) -> tuple[Array, Array]:
        """Centre and weights of the features of a map; of landmarks these are k(x) - r(x), and r(x)."""
        if self.mean_weights is None:
            return self.kernel_mean, self.weights
        total = self.weights.sum(axis=0)
        mean = self.kernel_mean.mean()
        return np.append(self.kernel_mean - mean, mean), np.vstack([self.weights - total / len(self.weights), total])

    def without_null(self) -> KernelSolution:
        """Return the components that have variance."""
        some = self.explained_variance > 0
        return replace(
            self, weights=self.weights[:, some], explained_variance=self.explained_variance[some],
            certificate=self.certificate[some], advice="" if self.advice == _null_advice(~some) else self.advice,
        )  # fmt: skip


@dataclass(frozen=True)
class Spectrum:
    """The kernel matrix K of landmarks: its means, and eigenpairs of the centred matrix, descending."""

    K: Array
    means: Array
    values: Array
    U: Array

    @classmethod
    def of(cls, K: Array) -> Spectrum:
        """Return the spectrum of K."""
        means = K.mean(axis=0)
        values, U = eigenpairs(K - means[:, None] - means[None, :] + means.mean())
        return cls(K, means, values[::-1], U[:, ::-1])

    def span(self, dtype: np.dtype[Any], n: int) -> Span:
        """Return the directions of K that sums of products of a type over n samples are likely to resolve.

        A rough estimate of the rounding error, `noise`, only chooses directions. The error of the result is measured.
        """
        m, largest = len(self.K), float(np.abs(np.diagonal(self.K)).max())
        unit, double = (float(np.finfo(t).eps) / 2 for t in (dtype, np.float64))
        length = SCATTER_TILE_LENGTH
        grown = 8 + np.sqrt(min(length, n) / np.clip(n / length, 1, 64))
        noise = unit * grown * float(np.square(self.values / m).sum())
        # Where rounding, magnified by 1 / L, is as large as the variance L / m of the landmarks.
        floor = max(np.sqrt(m * noise), 4 * np.sqrt(m) * unit * largest, 4 * m * double * largest)
        used = self.values > floor
        B = self.U[:, used] / np.sqrt(self.values[used])
        B -= B.mean(axis=0)
        common = float(self.means.mean())
        inside = B.T @ (self.means - common)
        # The part of the mean of the landmarks outside the span of their differences.
        apart = common - float(inside @ inside)
        top, bottom = [B], [np.zeros(B.shape[1])]
        if apart > max(64 * np.sqrt(m) * unit * abs(common), floor / m):
            top.append(-(B @ inside)[:, None] / np.sqrt(apart))
            bottom.append(np.array([1 / np.sqrt(apart)]))
        both = np.vstack([np.hstack(top), np.concatenate(bottom)[None, :]])
        middle = np.append(self.means - common, common)
        L = self.values[used]
        faintest = float(L[-1]) if used.any() else np.inf
        return Span(both, len(L), middle, float(noise), faintest, not_positive(self.values[::-1], self.K))


@dataclass(frozen=True)
class Span:
    """The span of landmarks: phi(x) - phi(mean of the landmarks) = B'(z(x) - middle).

    Attributes
    ----------
    B : (m + 1, r); first `n_differences` directions of differences of landmarks, then that of their mean, if any.
    middle : (m + 1,) z of the mean of the landmarks.
    noise : rough estimate of the rounding error of the covariance of k(x), by which directions were chosen.
    faintest : smallest eigenvalue of the centred K that is used.
    advice : if the kernel is not positive.
    """

    B: Array
    n_differences: int
    middle: Array
    noise: float
    faintest: float
    advice: str

    @property
    def rank(self) -> int:
        """Number of directions."""
        return int(self.B.shape[1])

    @property
    def on_landmarks(self) -> Array:
        """The directions as weights of landmarks, (m, r)."""
        return np.asarray(self.B[:-1] + self.B[-1] / len(self.B[:-1]))

    def coordinates(self, kernel: Kernel, landmarks: Array, X: Array) -> tuple[Array, Array]:
        """Return phi(x) - phi(mean of the landmarks) of rows, (t, r), and r(x), (t,), in float64."""
        z = np.array(LandmarkMap(kernel, landmarks.astype(np.float64))(X.astype(np.float64)))
        return np.asarray((z - self.middle) @ self.B), z[:, -1]


def needs_float64(spectrum: Spectrum, kernel: Kernel, landmarks: Array, others: Array, k: int, n: int) -> bool:
    """Whether float32 tiles would lose too much variance of other samples."""
    single, double = (spectrum.span(np.dtype(t), n) for t in (np.float32, np.float64))
    wanted = max(float(spectrum.values[min(k, len(spectrum.values)) - 1]), np.finfo(np.float64).tiny)
    expected = wanted / len(landmarks)
    largest = float(np.abs(np.diagonal(spectrum.K)).max())
    # Rounding of the values, relative to their differences.
    spread = float(np.maximum(spectrum.values, 0.0).mean())
    rounded = float(np.finfo(np.float32).eps) * largest > TOLERATED / 10 * spread
    if rounded or single.noise / wanted > TOLERATED * expected or single.noise / single.faintest > SPURIOUS * expected:
        return True
    if not len(others):
        return single.rank < double.rank
    # The directions in float32 are the first of those in float64.
    held = np.square(double.coordinates(kernel, landmarks, others)[0]).sum(axis=0)
    return float(held[single.n_differences : double.n_differences].sum()) > TOLERATED * float(held.sum())


def missed_by(span: Span, kernel: Kernel, landmarks: Array, others: Array) -> float:
    """Estimate the largest variance along any direction outside the span, from other samples.

    It is the norm of (I - P) C (I - P) of a sample, which is too large rather than too small, unless groups are so rare
    that the sample has none of them. No exact eigenvalue is larger than the computed one by more than this: C = X'X for
    X of two parts, and X X' is the sum of theirs.
    """
    y, r = span.coordinates(kernel, landmarks, others)
    left = kernel_matrix(kernel, others) - r[:, None] - r[None, :] + span.middle[-1] - y @ y.T
    largest, _, _ = leading_pairs(left, Wanted(1, None, 1.0), 0.0)
    return float(largest[0]) / len(others)


def eigenpairs(K: Array) -> tuple[Array, Array]:
    """Return all eigenvalues of a symmetric matrix, ascending, and eigenvectors."""
    # SciPy is slow to load, and other models do without it.
    from scipy.linalg import eigh

    # SciPy has its own BLAS, which may have been loaded just now.
    with threadpool_limits(1, user_api="blas"):
        values, U = eigh(K, check_finite=False, driver="evd")
    return values, U


def not_positive(values: Array, K: Array) -> str:
    """Return advice if the eigenvalues of a kernel matrix K, ascending, include clearly negative ones."""
    rounding = 16 * len(K) * np.finfo(np.float64).eps * float(np.abs(np.diagonal(K)).max())
    if values[0] >= -max(NEGATIVE * values[-1], rounding):
        return ""
    return (
        f"the kernel is not positive on these data (eigenvalues of its matrix range from {values[0]:.3g} to "
        f"{values[-1]:.3g}): negative parts are dropped, and shares and certificates do not hold"
    )


def kernel_matrix(kernel: Kernel, landmarks: Array) -> Array:
    """Return k of all pairs of landmarks in float64, symmetric; raise if values are not finite."""
    points = landmarks.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        K = kernel.values(points, points)
    check_finite(np.abs(K).max() < LARGEST, kernel)
    return (K + K.T) / 2


def solve_exact(K: Array, k: int) -> KernelSolution:
    """Return the components from the kernel matrix of all samples, centred: no sweep."""
    n = len(K)
    spectrum = Spectrum.of(K)
    total = float(np.sum(spectrum.values)) / (n - 1)
    check_spread(total, float(np.trace(K)) / n)
    values, U = np.maximum(spectrum.values[:k], 0.0), spectrum.U[:, :k]
    null = is_null(values, n)
    weights = np.where(null, 0.0, U / np.sqrt(np.where(null, 1.0, values)))
    # A value of the kernel is a sum over features, which may be more than samples.
    floor = UNIT * (16 + 4 * n) * max(float(np.trace(K)), float(values[0]))
    errors = certify(values, U, np.zeros_like(U), floor)
    certificate = np.where(null, np.inf, errors.certificate)
    advice = joined(not_positive(spectrum.values[::-1], K), _null_advice(null))
    values = np.where(null, 0.0, values) / (n - 1)
    return KernelSolution(
        weights=weights, kernel_mean=spectrum.means, mean_weights=np.full(n, 1 / n), explained_variance=values,
        certificate=certificate, total_variance=total, lost_variance=0.0, kept_trace=1.0, rank=n, advice=advice,
    )  # fmt: skip


def solve_nystrom(sweeps: Sweeps, kernel: Kernel, landmarks: Array, span: Span, k: int) -> KernelSolution:
    """Return the components in a span of landmarks; one sweep over the matrix of inputs that `sweeps` has."""
    inputs = sweeps.matrix
    # Values of the kernel are always float64; their products are float32, with probes, if tiles are float32.
    points = LandmarkMap(kernel, landmarks.astype(np.float64), with_diagonal=True)
    sweeps.matrix = FeatureMatrix.of(inputs, points)
    G = draw_probes(span.rank)
    probed = inputs.dtype != np.float64
    statistic: Statistic = Probed(Scatter(), np.vstack([span.B @ G, np.zeros((1, PROBES))])) if probed else Scatter()
    chain = chain_of(sweeps.matrix, statistic)
    try:
        value, moments = sweeps.run(statistic, "kernel covariance", check=True)
    finally:
        sweeps.matrix = inputs
    assert moments is not None
    check_finite(np.isfinite([moments.mean, moments.m2]).all(), kernel)
    n, grown = inputs.source.shape[0], inputs.source.shape[0] / (inputs.source.shape[0] - 1)
    scatter, H = value if probed else (value, None)
    # The last feature is k(x, x).
    S, centre, diagonal = symmetric(scatter)[:-1, :-1], moments.mean[:-1], float(moments.mean[-1])
    C = span.B.T @ S @ span.B
    C = (C + C.T) / (2 * (n - 1))
    probe = None if H is None else Probe(G, span.B.T @ H[:-1] / (n - 1))
    in_span = float(np.trace(C))
    shift = span.B.T @ (centre - span.middle)
    # Squared distances from the mean of the landmarks, minus the part inside the span.
    distance = diagonal - 2 * centre[-1] + span.middle[-1]
    lost = max(0.0, float(grown * (distance - shift @ shift)) - in_span)
    check_spread(in_span + lost, diagonal)
    widest = float(np.linalg.norm(span.B[:-1], 2))
    float64_error = UNIT * (len(S) + chain + 16) * float(np.trace(S)) / (n - 1)
    # Rounding must not hide what is lost.
    likely, bound = (0.0, 0.0) if probe is None else _trace_errors(C, probe)
    lost += 4 * len(S) * UNIT * abs(diagonal) + likely
    values, V, _ = leading_pairs(C, Wanted(min(k + SPARE, span.rank), None, 1.0), in_span)
    weights = span.on_landmarks @ V
    floor = float64_error * widest * np.linalg.norm(span.B @ V, axis=0)
    errors = certify(values, V, C @ V - V * values, floor, probe)
    # Components that may be rounding only are dropped.
    junk = 2 * errors.rounding / (1.0 if probe is None else MARGIN)
    sound = np.flatnonzero(values > np.maximum(junk, 64 * np.finfo(np.float64).eps * values[0]))[:k]
    null = np.arange(k) >= len(sound)
    missed = lost + bound + float64_error * float(np.square(span.B).sum())
    bounds = np.sqrt(missed / values[sound]) + errors.certificate[sound]
    empty = k - len(sound)
    values = np.append(values[sound], np.zeros(empty))
    weights = np.hstack([weights[:, sound], np.zeros((len(landmarks), empty))])
    certificate = np.append(bounds, np.full(empty, np.inf))
    kept = 1 - lost / (diagonal * grown)
    mean_weights = 1 / len(landmarks) + span.on_landmarks @ shift
    return KernelSolution(
        weights=weights, kernel_mean=centre[:-1] + centre[-1], mean_weights=mean_weights, explained_variance=values,
        certificate=certificate, total_variance=in_span + lost, lost_variance=lost, kept_trace=kept, rank=span.rank,
        advice=joined(span.advice, _null_advice(null)),
    )  # fmt: skip


def _trace_errors(C: Array, probe: Probe) -> tuple[float, float]:
    """Return the likely error of the trace of C, from float32 products, and an upper bound on it.

    With E the error of C, g'E g has the mean tr E, and all of p such numbers are below tr E - 2 sqrt(x) ||E||_F -
    2 x ||E|| with probability e^(-p x) (Laurent & Massart 2000, Ann. Stat. 28, 1302); ||E||_F <= 30 max_j ||E g_j||.
    """
    E = C @ probe.G - probe.H
    quadratic, lengths = np.einsum("ij,ij->j", probe.G, E), np.linalg.norm(E, axis=0)
    likely = abs(float(quadratic.mean())) + 4 * float(np.sqrt(np.square(lengths).mean() * 2 / PROBES))
    return likely, max(0.0, float(quadratic.max()) + 10 * MARGIN * float(lengths.max()))


def check_finite(finite: Any, kernel: Kernel) -> None:
    """Raise if kernel values overflow or are not numbers."""
    if not finite:
        raise InputError(
            f"the kernel ({kernel.name}) overflows, or is not a number, on these data; scale them (scale='unit'), or "
            "lower gamma and degree"
        )


def check_spread(total: float, diagonal: float) -> None:
    """Raise for a kernel that is the same for all pairs of samples."""
    if total <= SMALLEST_SHARE * abs(diagonal):
        raise InputError(
            "the kernel is the same for all pairs of samples, to double precision: all samples are equal, or gamma is "
            "much too small; use gamma='median' or 'scale', which depend on the data"
        )


def joined(*advice: str) -> str:
    """Join advice."""
    return "; ".join(part for part in advice if part)


def _null_advice(null: Array) -> str:
    if not null.any():
        return ""
    return (
        f"only {int((~null).sum())} components have variance above rounding: the others are zero (samples are equal, "
        "or there are more components than directions of the kernel)"
    )

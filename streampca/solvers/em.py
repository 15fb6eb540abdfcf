"""Expectation-maximisation for latent factors, as sweeps: probabilistic PCA and factor analysis, gaps and all.

    x = W z + mu + noise,   z ~ N(0, I),   noise ~ N(0, psi_j) in feature j;  psi_j = s2 in all for probabilistic PCA

    E-step, sample n, over its features j:   M_n = I + sum_j w_j w_j' / psi_j
                                             <z_n> = M_n^-1 sum_j w_j (x_nj - mu_j) / psi_j,   cov(z_n) = M_n^-1
    M-step, feature j, over its samples n:   (w_j, mu_j) = (sum_n <z~ z~'>)^-1 sum_n x_nj <z~_n>,   z~ = (z, 1)

Both steps are small least-squares problems, one a row of the one axis, whose sums run over the other. A missing entry
is left out of both sums: the sum over all entries is one matrix, and that over the missing ones is taken off it.
So one sweep does one step for the rows that it meets, and adds up what the other step needs:

    cut along samples:    the E-step of each sample met, and the sums for the M-step, which follows in memory
    cut along features:   the M-step of each feature met, and the sums for the E-step, which follows in memory

Either way an iteration reads the data once, and is exact. Everything is in the units of the scaled features, and means
are about the centre that tiles are taken from.

Two accelerations save sweeps and keep the answer. Parameter expansion lets z have any mean and covariance, and puts
both into W and mu; Anderson mixing extrapolates from the last few iterations, and is taken back where the likelihood
would fall.

References: Rubin & Thayer (1982), Psychometrika 47, 69; Roweis (1997), NIPS 10; Tipping & Bishop (1999), J. R. Stat.
Soc. B 61, 611; Liu, Rubin & Wu (1998), Biometrika 85, 755, parameter expansion; Henderson & Varadhan (2019), J. Comput.
Graph. Stat. 28, 834, Anderson mixing of EM.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from streampca.accumulators import Statistic, add_product
from streampca.gaps import Gaps
from streampca.sweeps import Sweeps, one_blas_thread

Array = NDArray[Any]

# Rows of one piece of a step in memory: bounds its k x k matrices, and shares it among threads.
PIECE = 4096
# Iterations that Anderson mixing looks back on.
MEMORY = 4
# The noise is held above this share of the mean variance of a feature: likelihoods stay finite for data without noise.
LEAST_NOISE = 1e-10
# The likelihood may rise by this share of itself, times the tolerance, when the iteration stops.
LEAST_GAIN = 1e-4
# Of two likelihoods of float32 products, a fall by less than this share is rounding.
ROUNDING = {np.dtype(np.float32): 1e-7, np.dtype(np.float64): 1e-11}


@dataclass(frozen=True)
class Factors:
    """The parameters: x = W z + shift + noise, in units of the scaled features, about their centre.

    Attributes
    ----------
    W : (d, k).
    shift : (d,) mu less the centre.
    noise : s2, or psi (d,).
    """

    W: Array
    shift: Array
    noise: float | Array

    @property
    def n_components(self) -> int:
        """Latent dimensions, k."""
        return int(self.W.shape[1])

    @property
    def both(self) -> Array:
        """W and the shift side by side, (d, k + 1)."""
        return np.column_stack([self.W, self.shift])

    @property
    def weights(self) -> Array:
        """What a squared deviation of each feature counts: 1 / psi; 1 where the noise is common and divides later."""
        return np.asarray(1.0 / self.noise) if isinstance(self.noise, np.ndarray) else np.ones(len(self.W))

    @property
    def common(self) -> float:
        """The noise that is not in the weights: s2, or 1."""
        return 1.0 if isinstance(self.noise, np.ndarray) else self.noise

    @property
    def logs(self) -> tuple[Array, float]:
        """What an observed value of each feature adds to -2 log p for its noise alone, as a number and a factor."""
        if isinstance(self.noise, np.ndarray):
            return np.log(2 * np.pi * self.noise), 1.0
        return np.ones(len(self.W)), float(np.log(2 * np.pi * self.noise))

    def part(self, features: slice) -> Factors:
        """Return the parameters of some features."""
        noise = self.noise[features] if isinstance(self.noise, np.ndarray) else self.noise
        return Factors(self.W[features], self.shift[features], noise)

    def rotated(self) -> tuple[Factors, Array]:
        """Return the same model along principal axes, and the rotation R: z' = z R.

        W R has orthogonal columns, longest first (in the metric 1 / psi), the largest entry of each positive.
        """
        values, R = np.linalg.eigh((self.W.T * self.weights) @ self.W)
        R = R[:, np.argsort(values)[::-1]]
        W = self.W @ R
        signs = np.sign(W[np.abs(W).argmax(axis=0), range(W.shape[1])])
        signs[signs == 0] = 1.0
        return replace(self, W=W * signs), R * signs

    def vector(self) -> Array:
        """Return all parameters in one row, the noise by its logarithm, to extrapolate."""
        return np.concatenate([self.W.ravel(), self.shift, np.atleast_1d(np.log(self.noise))])

    def moved(self, vector: Array) -> Factors:
        """Return the parameters that such a row holds."""
        d, k = self.W.shape
        noise = np.exp(vector[d * (k + 1) :])
        W, shift = vector[: d * k].reshape(d, k), vector[d * k : d * (k + 1)]
        return Factors(W, shift, noise if isinstance(self.noise, np.ndarray) else float(noise[0]))

    def directions(self) -> Array:
        """Return what spans the subspace."""
        return self.W


@dataclass(frozen=True)
class Posterior:
    """What is known of z of each sample: mean (n, k), and covariance (n, k (k + 1) / 2), packed, or one for all."""

    mean: Array
    covariance: Array

    def vector(self) -> Array:
        """Return the means in one row, to extrapolate."""
        return self.mean.ravel()

    def moved(self, vector: Array) -> Posterior:
        """Return the same with other means."""
        return replace(self, mean=vector.reshape(self.mean.shape))

    def directions(self) -> Array:
        """Return what spans the subspace."""
        return self.mean

    def deviations(self) -> Array:
        """Return the standard deviation of each coordinate, (n, k)."""
        packing = Packing(self.mean.shape[1])
        variance = self.covariance[:, packing.rows == packing.columns]
        return np.broadcast_to(np.sqrt(variance), self.mean.shape)

    def rotated(self, R: Array) -> Posterior:
        """Return that of z R."""
        packing = Packing(len(R))
        turned = R.T @ packing.unpacked(self.covariance) @ R
        return Posterior(self.mean @ R, packing.packed(turned))


class Packing:
    """Symmetric k x k matrices as rows of their k (k + 1) / 2 entries on and below the diagonal."""

    def __init__(self, k: int):
        self.rows, self.columns = np.tril_indices(k)
        self.width = len(self.rows)
        self._index = np.zeros((k, k), np.intp)
        self._index[self.rows, self.columns] = self._index[self.columns, self.rows] = np.arange(self.width)

    def packed(self, matrices: Array) -> Array:
        """Return (t, k, k) as (t, width)."""
        return np.asarray(matrices[:, self.rows, self.columns])

    def outer(self, rows: Array, weights: Array | float = 1.0) -> Array:
        """Return w y y' of each row y, packed."""
        return np.asarray((rows * np.reshape(weights, (-1, 1)))[:, self.rows] * rows[:, self.columns])

    def unpacked(self, packed: Array) -> Array:
        """Return (t, width) as (t, k, k)."""
        return np.asarray(packed[:, self._index])


@dataclass(frozen=True)
class Side:
    """What the rows of one axis bring to the sums over it: of features (w_j, shift_j) / psi_j, of samples (<z>, 1).

    Attributes
    ----------
    rows : (N, k + 1), in the tiles' type; what A is multiplied by.
    gaps : (N, width + 1) packed products of each row, and what else a missing entry takes off; None without gaps.
    total : (width + 1,) sum of these over all rows, as rounded.
    """

    rows: Array
    gaps: Array | None
    total: Array

    @classmethod
    def of_features(cls, factors: Factors, gaps: bool, dtype: Any) -> Side:
        """Return that of the features: what the E-step needs."""
        rows, beside = _brought(factors)
        beside = beside.astype(dtype)
        return cls(rows.astype(dtype), beside if gaps else None, _sum(beside))

    @classmethod
    def of_samples(cls, posterior: Posterior, gaps: bool, dtype: Any) -> Side:
        """Return that of the samples: what the M-step needs."""
        rows = np.column_stack([posterior.mean, np.ones(len(posterior.mean))])
        beside = np.column_stack([_second_moments(rows, posterior.covariance), rows[:, -1:]]).astype(dtype)
        return cls(rows.astype(dtype), beside if gaps else None, _sum(beside))


def _sum(rows: Array) -> Array:
    return np.asarray(rows.sum(axis=0, dtype=np.float64))


def _second_moments(rows: Array, covariance: Array) -> Array:
    """Return <z~ z~'> of each sample, packed, from (<z>, 1) and the covariance of z."""
    k = rows.shape[1] - 1
    moments = Packing(k + 1).outer(rows)
    # Packed row by row, the entries of z with itself come first.
    moments[:, : k * (k + 1) // 2] += covariance
    return moments


def e_step(products: Array, off: Array | None, side: Side, factors: Factors) -> tuple[Posterior, Array, Array]:
    """Return what is known of z of each sample, and twice the log-likelihood but for the squared deviations.

    Parameters
    ----------
    products : (t, k + 1) x_n' side.rows; missing entries are zero in x.
    off : (t, width + 1) sum of side.gaps over the missing entries of each sample; None without any.

    Returns the posterior, the terms, and sum_j shift_j^2 / psi_j over the observed features.
    """
    k = factors.n_components
    packing = Packing(k + 1)
    left = side.total[None, :] if off is None else side.total - off
    M = packing.unpacked(left[:, :-1])
    b = products[:, :k] - M[:, :k, k]
    inverse = np.linalg.inv(M[:, :k, :k] + factors.common * np.eye(k))
    mean = np.einsum("nij,nj->ni", np.broadcast_to(inverse, (len(b), k, k)), b)
    log_noise = left[:, -1] * factors.logs[1]
    logdet = -np.linalg.slogdet(inverse)[1] - k * np.log(factors.common)
    terms = (b * mean).sum(axis=1) / factors.common - log_noise - logdet
    shifted = np.broadcast_to(M[:, k, k], len(b))
    return Posterior(mean, Packing(k).packed(factors.common * inverse)), terms, shifted


def m_step(products: Array, off: Array | None, total: Array) -> tuple[Array, Array]:
    """Return (w_j, shift_j) of each feature, (t, k + 1), and how many samples have a value of it.

    Parameters
    ----------
    products : (t, k + 1) sum over samples of x_nj (<z_n>, 1).
    off : (t, width + 1) sum of <z~ z~'> and 1 over the samples whose value is missing.
    total : (width + 1,) the same over all samples.
    """
    packing = Packing(products.shape[1])
    left = total[None, :] if off is None else total - off
    count = np.broadcast_to(np.rint(left[:, -1]), len(products))
    S = packing.unpacked(left[:, :-1])
    if off is None:
        return np.linalg.solve(S[0], products.T).T, count
    empty = count == 0
    S[empty] = np.eye(products.shape[1])
    both = np.linalg.solve(S, products[:, :, None])[:, :, 0]
    both[empty] = 0.0
    return both, count


@dataclass
class Sums:
    """What a sweep adds up.

    Attributes
    ----------
    products : A'Y (N x (k + 1)) for what each row of A brings, Y.
    off : (N, width + 1) sums beside the gaps, for each column of A; None without gaps.
    total : (width + 1,) the same over all rows.
    numbers : sums of a step's own.
    pieces : what was found for each row of A.
    """

    products: Array
    off: Array | None
    total: Array
    numbers: Array
    pieces: list[tuple[Array, ...]] = field(default_factory=list)

    def __add__(self, other: Sums) -> Sums:
        off = None if self.off is None or other.off is None else self.off + other.off
        return Sums(
            self.products + other.products, off, self.total + other.total, self.numbers + other.numbers,
            self.pieces + other.pieces,
        )  # fmt: skip


@dataclass(frozen=True)
class _Step(Statistic):
    """One step for the rows that a sweep meets, and the sums for the other step."""

    side: Side

    @property
    def wants_gaps(self) -> bool:  # type: ignore[override]
        """Tell whether there may be missing entries."""
        return self.side.gaps is not None

    def zero(self, n_full: int) -> Sums:
        """Return sums of nothing."""
        width = len(self.side.total)
        off = np.zeros((n_full, width)) if self.wants_gaps else None
        return Sums(np.zeros((n_full, self.side.rows.shape[1]), order="F"), off, np.zeros(width), np.zeros(3))

    def update(self, value: Sums, A: Array, start: int, gaps: Gaps | None = None) -> None:
        """Take the step for the rows of this tile, and add what they bring."""
        rows, beside = self.rows(value, A, start, gaps)
        beside = np.broadcast_to(beside, (len(A), beside.shape[1])).astype(A.dtype)
        add_product(value.products, rows.astype(A.dtype), A)
        value.total += _sum(beside)
        if gaps is not None and value.off is not None:
            gaps.to_columns(beside, value.off)

    def rows(self, value: Sums, A: Array, start: int, gaps: Gaps | None) -> tuple[Array, Array]:
        """Return what each row of A brings to the products, and to the sums beside the gaps."""
        raise NotImplementedError

    def met(self, A: Array, gaps: Gaps | None) -> tuple[Array, Array | None]:
        """Return the sums of each row of A over the other side: products, and what its missing entries take off."""
        off = gaps.of_rows(self.side.gaps) if gaps is not None and self.side.gaps is not None else None
        return (A @ self.side.rows).astype(np.float64), off


@dataclass(frozen=True)
class SampleStep(_Step):
    """The E-step of samples, and the sums for the M-step. Numbers: the log-likelihood."""

    factors: Factors

    def rows(self, value: Sums, A: Array, start: int, gaps: Gaps | None) -> tuple[Array, Array]:  # noqa: ARG002
        """Return (<z>, 1) and <z~ z~'> of the samples met."""
        posterior, likelihood = samples_of(A, *self.met(A, gaps), self.side, self.factors)
        value.numbers += likelihood.sum(), 0.0, 0.0
        rows = np.column_stack([posterior.mean, np.ones(len(A))])
        return rows, np.column_stack([_second_moments(rows, posterior.covariance), rows[:, -1:]])


def samples_of(A: Array, products: Array, off: Array | None, side: Side, factors: Factors) -> tuple[Posterior, Array]:
    """Return what is known of z of the samples that are the rows of A, and their log-likelihood."""
    posterior, terms, shifted = e_step(products, off, side, factors)
    own = isinstance(factors.noise, np.ndarray)
    squares = (A * A) @ factors.weights.astype(A.dtype) if own else np.einsum("ij,ij->i", A, A)
    distance = squares.astype(np.float64) - 2 * products[:, -1] + shifted
    return posterior, 0.5 * (terms - distance / factors.common)


@dataclass(frozen=True)
class FeatureStep(_Step):
    """The M-step of features, and the sums for the E-step.

    Numbers: residual squares, observed values, and squared deviations from mu in units of the noise.

    Parameters
    ----------
    squares : (d,) sum of squares of each feature.
    own_noise : whether each feature has its own noise, no less than `least`.
    """

    squares: Array
    own_noise: bool
    least: float

    def rows(self, value: Sums, A: Array, start: int, gaps: Gaps | None) -> tuple[Array, Array]:
        """Return (w, shift) / psi of the features met, and their products."""
        products, off = self.met(A, gaps)
        both, count = m_step(products, off, self.side.total)
        squares, shift = self.squares[start : start + len(A)], both[:, -1]
        residual = squares - (products * both).sum(axis=1)
        noise = np.maximum(residual / np.maximum(count, 1), self.least) if self.own_noise else 1.0
        part = Factors(both[:, :-1], shift, noise)
        distance = (squares - 2 * shift * products[:, -1] + shift**2 * count) * part.weights
        value.numbers += residual.sum(), count.sum(), distance.sum()
        value.pieces.append((both, np.broadcast_to(noise, len(A))))
        return _brought(part)


@dataclass(frozen=True)
class GivenFeatures(_Step):
    """Features as they are, and the sums for the E-step. Numbers: the squares of each sample, in units of the noise."""

    factors: Factors

    def zero(self, n_full: int) -> Sums:
        """Return sums of nothing."""
        value = super().zero(n_full)
        value.numbers = np.zeros(n_full)
        return value

    def rows(self, value: Sums, A: Array, start: int, gaps: Gaps | None) -> tuple[Array, Array]:  # noqa: ARG002
        """Return (w, shift) / psi of the features met, and their products."""
        part = self.factors.part(slice(start, start + len(A)))
        value.numbers += part.weights.astype(A.dtype) @ (A * A)
        return _brought(part)


def _brought(part: Factors) -> tuple[Array, Array]:
    """Return what features bring to the products, and to the sums beside the gaps, of the E-step."""
    weights = part.weights
    beside = np.column_stack([Packing(part.n_components + 1).outer(part.both, weights), part.logs[0]])
    return part.both * weights[:, None], beside


@dataclass(frozen=True)
class Inference(_Step):
    """What is known of z of samples, cut along samples, and their log-likelihood, as pieces in order.

    With a `sink`, means and deviations of a partition go there as (start, means, deviations).
    """

    factors: Factors
    sink: Callable[[int, Array, Array], None] | None = None

    def zero(self, n_full: int) -> Any:  # noqa: ARG002
        """Return no pieces."""
        return []

    def update(self, value: Any, A: Array, start: int, gaps: Gaps | None = None) -> None:  # noqa: ARG002
        """Append the rows of this tile."""
        posterior, likelihood = samples_of(A, *self.met(A, gaps), self.side, self.factors)
        covariance = np.broadcast_to(posterior.covariance, (len(A), posterior.covariance.shape[1]))
        value.append((posterior.mean, covariance, likelihood))

    def finish(self, value: Any, start: int) -> list[tuple[Array, ...]]:
        """Join the pieces, and give means and deviations to the sink if there is one."""
        mean, covariance, likelihood = (np.concatenate(parts) for parts in zip(*value, strict=True))
        if self.sink is not None:
            self.sink(start, mean, Posterior(mean, covariance).deviations())
            mean, covariance = mean[:0], covariance[:0]
        return [(mean, covariance, likelihood)]


def infer(
    sweeps: Sweeps, factors: Factors, gaps: bool, sink: Callable[[int, Array, Array], None] | None = None,
    check: bool = False,
) -> tuple[Posterior, Array]:  # fmt: skip
    """Return what is known of z of each sample, and their log-likelihood; one sweep.

    Cut along samples, a sink gets means and deviations instead. Data that were not fitted need a `check` for values
    that are no numbers.
    """
    matrix = sweeps.matrix
    side = Side.of_features(factors, gaps, matrix.dtype)
    if matrix.axis == 0:
        pieces, _ = sweeps.run(Inference(side, factors, sink), "posterior", check)
        mean, covariance, likelihood = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return Posterior(mean, covariance), likelihood
    sums, _ = sweeps.run(GivenFeatures(side, factors), "posterior", check)
    posterior, terms, shifted = _e_step_of_all(sums, factors, sweeps.threads)
    distance = sums.numbers - 2 * sums.products[:, -1] + shifted
    return posterior, 0.5 * (terms - distance / factors.common)


def _e_step_of_all(sums: Sums, factors: Factors, threads: int) -> tuple[Posterior, Array, Array]:
    """Take the E-step of all samples from their sums, piece by piece."""
    side = Side(np.empty(0), None, sums.total)

    def piece(rows: slice) -> tuple[Posterior, Array, Array]:
        return e_step(sums.products[rows], None if sums.off is None else sums.off[rows], side, factors)

    found = _in_pieces(piece, len(sums.products), threads)
    mean = np.concatenate([posterior.mean for posterior, _, _ in found])
    covariance = [posterior.covariance for posterior, _, _ in found]
    terms = np.concatenate([part for _, part, _ in found])
    shifted = np.concatenate([part for _, _, part in found])
    return Posterior(mean, covariance[0] if sums.off is None else np.concatenate(covariance)), terms, shifted


T = TypeVar("T")


def _in_pieces(function: Callable[[slice], T], count: int, threads: int) -> list[T]:
    """Return function of ranges of so many rows, in order; several at a time."""
    ranges = [slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE)]
    with one_blas_thread, ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, ranges))


@dataclass(frozen=True)
class Found:
    """Parameters, and what is known of the samples at these, where the same sweep told."""

    factors: Factors
    posterior: Posterior | None = None


S = TypeVar("S", Factors, Posterior)


class Iteration(Protocol[S]):
    """One way to iterate: what it starts from, and one step."""

    def begin(self, start: Factors) -> tuple[S, list[float]]:
        """Return where to start, and log-likelihoods known by then."""

    def step(self, state: S) -> tuple[float, Found, S]:
        """Return a log-likelihood, the parameters that it is of, and where to go on from."""


@dataclass
class BySamples:
    """A sweep cut along samples: their E-step, and the M-step in memory."""

    sweeps: Sweeps
    squares: Array
    gaps: bool
    expand: bool
    least: float

    def begin(self, start: Factors) -> tuple[Factors, list[float]]:
        """Start from the parameters."""
        return start, []

    def step(self, factors: Factors) -> tuple[float, Found, Factors]:
        """Return the log-likelihood of the parameters, these, and the next ones."""
        side = Side.of_features(factors, self.gaps, self.sweeps.matrix.dtype)
        sums, _ = self.sweeps.run(SampleStep(side, factors), "EM")

        def piece(rows: slice) -> tuple[Array, Array]:
            return m_step(sums.products[rows], None if sums.off is None else sums.off[rows], sums.total)

        parts = _in_pieces(piece, len(sums.products), self.sweeps.threads)
        both, count = (np.concatenate(side) for side in zip(*parts, strict=True))
        residual = self.squares - (sums.products * both).sum(axis=1)
        noise = _noise(residual, count, self.least, isinstance(factors.noise, np.ndarray))
        if self.expand:
            centre, root = _expansion(sums.total)
            both[:, -1] += both[:, :-1] @ centre
            both[:, :-1] = both[:, :-1] @ root
        return float(sums.numbers[0]), Found(factors), Factors(both[:, :-1], both[:, -1], noise)


@dataclass
class ByFeatures:
    """A sweep cut along features: their M-step, and the E-step in memory."""

    sweeps: Sweeps
    squares: Array
    gaps: bool
    expand: bool
    least: float

    def begin(self, start: Factors) -> tuple[Posterior, list[float]]:
        """Start from what is known of the samples at these parameters: a sweep."""
        self._own_noise = isinstance(start.noise, np.ndarray)
        posterior, likelihood = infer(self.sweeps, start, self.gaps)
        return self._expanded(posterior), [float(likelihood.sum())]

    def step(self, posterior: Posterior) -> tuple[float, Found, Posterior]:
        """Return the log-likelihood of the next parameters, these, and what they tell of the samples."""
        side = Side.of_samples(posterior, self.gaps, self.sweeps.matrix.dtype)
        sums, _ = self.sweeps.run(FeatureStep(side, self.squares, self._own_noise, self.least), "EM")
        both, own = (np.concatenate(parts) for parts in zip(*sums.pieces, strict=True))
        residual, observed, distance = sums.numbers
        factors = Factors(both[:, :-1], both[:, -1], own if self._own_noise else max(residual / observed, self.least))
        found, terms, _ = _e_step_of_all(sums, factors, self.sweeps.threads)
        likelihood = 0.5 * (float(terms.sum()) - distance / factors.common)
        return likelihood, Found(factors, found), self._expanded(found)

    def _expanded(self, posterior: Posterior) -> Posterior:
        """Return the posterior of a z that has mean zero and covariance one over the samples."""
        if not self.expand:
            return posterior
        rows = np.column_stack([posterior.mean, np.ones(len(posterior.mean))])
        moments = _sum(_second_moments(rows, posterior.covariance))
        centre, root = _expansion(np.append(moments, len(rows)))
        inverse = np.linalg.inv(root)
        packing = Packing(len(root))
        turned = inverse @ packing.unpacked(posterior.covariance) @ inverse.T
        return Posterior((posterior.mean - centre) @ inverse.T, packing.packed(turned))


@dataclass
class ByScatter:
    """No sweep at all: complete data are known by their scatter (d x d) about the mean, if that fits in memory."""

    scatter: Array
    n_samples: int
    expand: bool
    least: float

    def begin(self, start: Factors) -> tuple[Factors, list[float]]:
        """Start from the parameters."""
        return start, []

    def step(self, factors: Factors) -> tuple[float, Found, Factors]:
        """Return the log-likelihood of the parameters, these, and the next ones."""
        W, n, k = factors.W, self.n_samples, factors.n_components
        weighted = W * factors.weights[:, None]
        inverse = np.linalg.inv(W.T @ weighted + factors.common * np.eye(k))
        V = weighted @ inverse
        SV = self.scatter @ V / n
        moments = factors.common * inverse + V.T @ SV
        variances = np.diag(self.scatter) / n
        distance = factors.weights @ variances - np.trace(np.linalg.solve(inverse, V.T @ SV))
        logs, unit = factors.logs
        logdet = -np.linalg.slogdet(inverse)[1] - k * np.log(factors.common)
        likelihood = -0.5 * n * (logs.sum() * unit + logdet + distance / factors.common)
        new = np.linalg.solve(moments, SV.T).T
        noise = _noise(
            variances - (new * SV).sum(axis=1), np.ones(len(W)), self.least, isinstance(factors.noise, np.ndarray)
        )
        return float(likelihood), Found(factors), Factors(
            new @ np.linalg.cholesky(moments) if self.expand else new, np.zeros(len(W)), noise
        )  # fmt: skip


def _noise(residual: Array, count: Array, least: float, own: bool) -> float | Array:
    """Return the noise of each feature, or the common one, from residual squares and numbers of values."""
    if own:
        return np.asarray(np.maximum(residual / np.maximum(count, 1), least))
    return float(max(residual.sum() / count.sum(), least))


def _expansion(total: Array) -> tuple[Array, Array]:
    """Return mean and root of the covariance of z over the samples, from the sum of <z~ z~'> and their number."""
    k = int(np.sqrt(2 * len(total))) - 1
    moments = Packing(k + 1).unpacked(total[None, :-1])[0] / total[-1]
    centre = moments[:k, k]
    return centre, np.linalg.cholesky(moments[:k, :k] - np.outer(centre, centre))


@dataclass(frozen=True)
class Fit:
    """Where EM came to.

    Attributes
    ----------
    factors : the parameters.
    posterior : of the samples at these, where a sweep gave it.
    likelihoods : log-likelihood after each iteration; it never falls.
    change : mean squared sine of the angles that the last iteration turned the subspace by.
    n_steps : steps taken, those taken back among them.
    converged : whether gain and change came within the tolerance.
    """

    factors: Factors
    posterior: Posterior | None
    likelihoods: tuple[float, ...]
    change: float
    n_steps: int
    converged: bool


@dataclass(frozen=True)
class EM(Generic[S]):
    """Repeats a step until neither likelihood nor subspace changes.

    Parameters
    ----------
    iteration : what a step is.
    tol : the subspace may still turn by an angle of this sine, and the likelihood rise by 1e-4 times this of itself.
    max_steps : after which it stops, wherever it is.
    mix : whether to extrapolate.
    rounding : of two likelihoods, a fall by less than this share is no fall.
    tell : called with what to show after each step.
    """

    iteration: Iteration[S]
    tol: float
    max_steps: int
    mix: bool = True
    rounding: float = 1e-11
    tell: Callable[[str], object] = str

    def fit(self, start: Factors) -> Fit:
        """Return the parameters of maximum likelihood near the start."""
        state, likelihoods = self.iteration.begin(start)
        found, change, converged = Found(start), np.inf, False
        mixing = _Mixing()
        safe: S | None = None
        n_steps = 0
        while n_steps < self.max_steps and not converged:
            likelihood, candidate, image = self.iteration.step(state)
            n_steps += 1
            gain = likelihood - likelihoods[-1] if likelihoods else np.inf
            if safe is not None and gain < -self.rounding * abs(likelihood):
                # The extrapolation went too far: go on from where the plain step had come to.
                state, safe = safe, None
                mixing.forget()
                continue
            found = candidate
            likelihoods.append(max(likelihood, *likelihoods[-1:]) if likelihoods else likelihood)
            change = _turned(state.directions(), image.directions())
            self.tell(f"log-likelihood {likelihood:.10g}, turned by {np.sqrt(change):.1e}")
            converged = change <= self.tol**2 and gain <= max(LEAST_GAIN * self.tol, self.rounding) * abs(likelihood)
            safe = None
            if self.mix and (moved := mixing.next(state.vector(), image.vector())) is not None:
                safe, image = image, image.moved(moved)
            state = image
        return Fit(found.factors, found.posterior, tuple(likelihoods), float(change), n_steps, bool(converged))


def _turned(a: Array, b: Array) -> float:
    """Return the mean squared sine of the angles between two column spaces."""
    Q, P = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    # Of what lies outside, not 1 minus what lies inside: small angles keep their digits.
    return float(np.mean(((P - Q @ (Q.T @ P)) ** 2).sum(axis=0)))


class _Mixing:
    """Anderson mixing: the combination of the last iterates whose residuals cancel best, each moved by its step."""

    def __init__(self) -> None:
        self._before: tuple[Array, Array] | None = None
        self._residuals: list[Array] = []
        self._images: list[Array] = []

    def forget(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]

    def next(self, x: Array, image: Array) -> Array | None:
        """Return where to go on from, given an iterate and its image; None while there is nothing to look back on."""
        residual = image - x
        before, self._before = self._before, (residual, image)
        if before is None:
            return None
        # Differences need no more digits than these.
        self._residuals = [*self._residuals, (residual - before[0]).astype(np.float32)][-MEMORY:]
        self._images = [*self._images, (image - before[1]).astype(np.float32)][-MEMORY:]
        gram = np.array([[float(np.dot(a, b)) for b in self._residuals] for a in self._residuals])
        right = np.array([float(np.dot(a, residual)) for a in self._residuals])
        share = np.linalg.lstsq(gram, right, rcond=1e-10)[0]
        if not np.isfinite(share).all():
            return None
        return np.asarray(image - sum(s * d for s, d in zip(share, self._images, strict=True)))

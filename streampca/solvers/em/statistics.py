"""Statistics of latent factors: one step of EM with the sums for the other step, inference, imputation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from streampca._typing import Array
from streampca.solvers.em.factors import (
    Factors,
    Known,
    Posterior,
    Side,
    contributions_of,
    dimensions,
    e_step,
    m_step,
    padded,
    second_moments,
)
from streampca.sources.scratch import scratch
from streampca.sweep.missing import MissingEntries
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Statistic, Summed, add_product
from streampca.sweep.sweep import Sweeps, one_blas_thread

PIECE_BYTES = 4 << 20  # of k x k matrices, for the rows of one piece
IMPUTED_AT_A_TIME = 1 << 16  # values


@dataclass
class Sums(Summed):
    """Sums of one sweep.

    Attributes
    ----------
    products : A'Y (N x (k + 1)) for the contributions Y of the rows of A.
    off : (N, width + 1) sums over the missing entries of each column of A; None for complete data.
    total : (width + 1,) the same over all rows.
    numbers : other sums; each step defines its own.
    pieces : results for each row of A.
    """

    products: Array
    off: Array | None
    total: Array
    numbers: Array
    pieces: list[tuple[Array, ...]] = field(default_factory=list)


@dataclass(frozen=True)
class EStep(Statistic):
    """One step for the rows of A, and the sums for the other step."""

    side: Side

    @property
    def wants_missing(self) -> bool:  # type: ignore[override]
        """Whether there may be missing entries."""
        return self.side.packed is not None

    @property
    def k(self) -> int:
        """Latent dimensions."""
        return dimensions(self.side.total)

    @staticmethod
    def rows_of(k: int, length: int) -> int:
        """Return the number of rows of a tile: up to `length`, and up to PIECE_BYTES of k x k matrices."""
        return int(np.clip(PIECE_BYTES // (8 * (k + 1) ** 2), 64, length))

    def tile_length(self, n_full: int, itemsize: int) -> int:
        """Return the number of rows of a tile, for the products and their matrices."""
        return self.rows_of(self.k, super().tile_length(n_full, itemsize))

    def zero(self, n_full: int) -> Sums:
        """Return empty sums."""
        width = len(self.side.total)
        off = np.zeros((n_full, width)) if self.wants_missing else None
        return Sums(np.zeros((n_full, self.side.rows.shape[1]), order="F"), off, np.zeros(width), np.zeros(3))

    def update(self, value: Sums, A: Array, start: int, missing: MissingEntries | None = None) -> None:
        """Take the step for the rows of this tile, and add their contributions."""
        rows, packed = self.contributions(value, A, start, missing)
        packed = np.broadcast_to(packed, (len(A), packed.shape[1])).astype(A.dtype, order="C")
        add_product(value.products, padded(rows, A.dtype), A)
        value.total += packed.sum(axis=0, dtype=np.float64)
        if missing is not None and value.off is not None:
            missing.add_to_columns(packed, value.off)

    def contributions(self, value: Sums, A: Array, start: int, missing: MissingEntries | None) -> tuple[Array, Array]:
        """Return what each row of A adds to the products, and to the sums over missing entries."""
        raise NotImplementedError

    def met(self, A: Array, missing: MissingEntries | None) -> tuple[Array, Array | None]:
        """Return the sums of each row of A over the other side: products, and the sum over its missing entries."""
        off = missing.sums_of_rows(self.side.packed) if missing is not None and self.side.packed is not None else None
        return (A @ self.side.rows)[:, : self.k + 1].astype(np.float64), off

    def finish(self, value: Any, start: int) -> Any:  # noqa: ARG002
        """Return the sums without the columns of zeros."""
        value.products = value.products[:, : self.k + 1].copy(order="F")
        return value


@dataclass(frozen=True)
class SampleStep(EStep):
    """The E-step of samples, and the sums for the M-step. Numbers: the log-likelihood."""

    factors: Factors

    def contributions(self, value: Sums, A: Array, start: int, missing: MissingEntries | None) -> tuple[Array, Array]:  # noqa: ARG002
        """Return (<z>, 1) and <z~ z~'> of samples."""
        posterior, likelihood = samples_of(A, *self.met(A, missing), self.side, self.factors)
        value.numbers += likelihood.sum(), 0.0, 0.0
        rows = np.column_stack([posterior.mean, np.ones(len(A))])
        return rows, np.column_stack([second_moments(rows, posterior.covariance), rows[:, -1:]])


def samples_of(A: Array, products: Array, off: Array | None, side: Side, factors: Factors) -> tuple[Posterior, Array]:
    """Return the posterior of z of the rows of A, which are samples, and their log-likelihood."""
    posterior, terms, shifted = e_step(products, off, side, factors)
    own = isinstance(factors.noise, np.ndarray)
    squares = np.multiply(A, A) @ factors.weights.astype(A.dtype) if own else np.einsum("ij,ij->i", A, A)
    distance = squares.astype(np.float64) - 2 * products[:, -1] + shifted
    return posterior, 0.5 * (terms - distance / factors.common)


@dataclass(frozen=True)
class FeatureStep(EStep):
    """The M-step of features, and the sums for the E-step.

    Numbers: residual squares, observed values, and squared deviations from mu in units of the noise.

    Parameters
    ----------
    squares : (d,) sum of squares of each feature.
    own_noise : whether each feature has its own noise.
    least : (d,) least noise.
    """

    squares: Array
    own_noise: bool
    least: Array

    def contributions(self, value: Sums, A: Array, start: int, missing: MissingEntries | None) -> tuple[Array, Array]:
        """Return (w, shift) / psi of the features met, and their products."""
        products, off = self.met(A, missing)
        both, count = m_step(products, off, self.side.total)
        squares, shift = self.squares[start : start + len(A)], both[:, -1]
        residual = squares - (products * both).sum(axis=1)
        least = self.least[start : start + len(A)]
        noise = np.maximum(residual / np.maximum(count, 1), least) if self.own_noise else 1.0
        part = Factors(both[:, :-1], shift, noise)
        distance = (squares - 2 * shift * products[:, -1] + shift**2 * count) * part.weights
        value.numbers += residual.sum(), count.sum(), distance.sum()
        value.pieces.append((both, np.broadcast_to(noise, len(A))))
        return contributions_of(part)


@dataclass(frozen=True)
class GivenFeatures(EStep):
    """The sums for the E-step, with the features of a model.

    Numbers: the sum of squares of each sample, in units of the noise, and its number of missing values.
    """

    factors: Factors

    def zero(self, n_full: int) -> Sums:
        """Return empty sums."""
        value = super().zero(n_full)
        value.numbers = np.zeros((2, n_full))
        return value

    def contributions(self, value: Sums, A: Array, start: int, missing: MissingEntries | None) -> tuple[Array, Array]:
        """Return (w, shift) / psi of the features met, and their products."""
        part = self.factors.part(slice(start, start + len(A)))
        squares = np.multiply(A, A, out=scratch("squares", A.shape, A.dtype))
        value.numbers[0] += part.weights.astype(A.dtype) @ squares
        if missing is not None:
            value.numbers[1] += np.diff(missing.starts)
        return contributions_of(part)


@dataclass(frozen=True)
class Inference(EStep):
    """Posterior of z of samples, cut along samples: means, spread, log-likelihood, number of values; in order.

    The spread is deviations, or packed covariances. A `sink` is called with (start, means, deviations) of each
    partition.
    """

    factors: Factors
    covariances: bool = False
    sink: Callable[[int, Array, Array], None] | None = None

    def zero(self, n_full: int) -> Any:  # noqa: ARG002
        """Return no pieces."""
        return []

    def update(self, value: Any, A: Array, start: int, missing: MissingEntries | None = None) -> None:  # noqa: ARG002
        """Append the rows of this tile."""
        posterior, likelihood = samples_of(A, *self.met(A, missing), self.side, self.factors)
        spread = posterior.deviations()
        if self.covariances:
            spread = np.broadcast_to(posterior.covariance, (len(A), posterior.covariance.shape[1]))
        observed = A.shape[1] - (np.zeros(len(A), np.int64) if missing is None else missing.of_each_row)
        value.append((posterior.mean, spread, likelihood, observed))

    def finish(self, value: Any, start: int) -> Any:
        """Join the pieces, and pass means and deviations to the sink if there is one."""
        mean, spread, likelihood, observed = (np.concatenate(parts) for parts in zip(*value, strict=True))
        if self.sink is not None:
            self.sink(start, mean, spread)
            mean, spread = mean[:0], spread[:0]
        return [(mean, spread, likelihood, observed)]


def infer(
    sweeps: Sweeps, factors: Factors, incomplete: bool, *, covariances: bool = False, check: bool = False,
    sink: Callable[[int, Array, Array], None] | None = None,
) -> tuple[Any, Array, Array]:  # fmt: skip
    """Infer z of each sample in one sweep; return it, the log-likelihoods, and the number of values of each sample.

    Parameters
    ----------
    covariances : whether to return a `Posterior`; a `Known` otherwise.
    check : whether to check for values that are not finite, in data that were not fitted.
    sink : receives means and deviations instead, if the matrix is cut along samples.
    """
    matrix = sweeps.matrix
    if matrix.axis == 0:
        statistic = Inference(Side.of_features(factors, incomplete, matrix.dtype), factors, covariances, sink)
        pieces, _ = sweeps.run(statistic, "posterior", check)
        mean, spread, likelihood, observed = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
        return (Posterior if covariances else Known)(mean, spread), likelihood, observed
    side = Side.unknown(factors.n_components, incomplete, matrix.dtype)
    sums, _ = sweeps.run(GivenFeatures(side, factors), "posterior", check)
    posterior, terms, shifted = e_step_of_all(sums, factors, sweeps.threads)
    squares, n_missing = sums.numbers
    likelihood = 0.5 * (terms - (squares - 2 * sums.products[:, -1] + shifted) / factors.common)
    return posterior if covariances else posterior.known(), likelihood, matrix.n_block - n_missing.astype(np.int64)


def e_step_of_all(sums: Sums, factors: Factors, threads: int) -> tuple[Posterior, Array, Array]:
    """Take the E-step of all samples from their sums, piece by piece."""
    side = Side(np.empty(0), None, sums.total)

    def piece(rows: slice) -> tuple[Posterior, Array, Array]:
        return e_step(sums.products[rows], None if sums.off is None else sums.off[rows], side, factors)

    pieces = in_pieces(piece, len(sums.products), factors.n_components, threads)
    posteriors, terms, shifted = zip(*pieces, strict=True)
    mean = np.concatenate([posterior.mean for posterior in posteriors])
    covariance = [posterior.covariance for posterior in posteriors]
    posterior = Posterior(mean, covariance[0] if sums.off is None else np.concatenate(covariance))
    return posterior, np.concatenate(terms), np.concatenate(shifted)


@dataclass(frozen=True)
class Imputation(Statistic):
    """Replaces missing values by their means given the other values of the sample. The value is their number.

    For a matrix that is neither centred nor scaled.

    Parameters
    ----------
    means : (n, k) posterior means of z.
    factors, scaling : the model.
    axis, length : along which the matrix is cut, and number of rows of a tile.
    sink : called with (start, complete rows of A) of each tile.
    top : values are clipped to 0 .. top; None for no limits.
    """

    means: Array
    factors: Factors
    scaling: Scaling
    axis: int
    length: int
    sink: Callable[[int, Array], None]
    top: float | None = None
    wants_missing: bool = True

    def tile_length(self, n_full: int, itemsize: int) -> int:  # noqa: ARG002
        """Return the length of a chunk of the output."""
        return self.length

    def zero(self, n_full: int) -> Array:  # noqa: ARG002
        """Return zero, as an array."""
        return np.zeros(1, np.int64)

    def update(self, value: Array, A: Array, start: int, missing: MissingEntries | None = None) -> None:
        """Replace the missing values of one tile, and pass it to the sink."""
        if missing is not None:
            value += len(missing.rows)
            columns = missing.columns
            for first in range(0, len(columns), IMPUTED_AT_A_TIME):
                part = slice(first, first + IMPUTED_AT_A_TIME)
                i, j = missing.rows[part], columns[part]
                A[i, j] = self._expected(*((start + i, j) if self.axis == 0 else (j, start + i)))
        self.sink(start, A)

    def _expected(self, samples: Array, features: Array) -> Array:
        """Return the expected value of each pair of a sample and a feature."""
        product = np.einsum("ij,ij->i", self.means[samples], self.factors.W[features])
        values = self.scaling.take(features).restore(product + self.factors.shift[features])
        return np.asarray(values if self.top is None else np.clip(values, 0.0, self.top))


T = TypeVar("T")


def in_pieces(function: Callable[[slice], T], count: int, k: int, threads: int) -> list[T]:
    """Return a function of ranges of rows, in order, computed by several threads."""
    step = EStep.rows_of(k, count)
    ranges = [slice(start, min(start + step, count)) for start in range(0, count, step)]
    with one_blas_thread, ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, ranges))

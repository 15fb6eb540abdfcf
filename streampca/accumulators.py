"""Statistics of a tall pile of rows that merge exactly: moments, scatter, block products, projections.

Everything here is plain NumPy. The rows are those of A (t x N): samples when the matrix is cut along samples, features
when it is cut along features, so that one `Scatter` is the covariance of the one case and the Gram matrix of the other.

A statistic has a true zero, `update` (adds the rows of one tile to a value in place) and `combine` (a new value from
two). Rows about a mean that is not known yet are taken about those of parts; the difference is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca.buffers import scratch

Array = NDArray[Any]

# Target size of one tile of a block product: near the L2 cache, and long enough for the BLAS to run at speed.
TILE_BYTES = 2 << 20
MIN_TILE_LENGTH = 64
# Rows worth having even where the tile then outgrows that cache: adding N x b sums costs little beside their product.
GOOD_TILE_LENGTH = 128
LARGE_TILE_BYTES = 12 << 20
# A tile of the scatter is long, so that adding N x N float64 sums costs little beside the product itself.
SCATTER_TILE_LENGTH = 2048
# Rows whose sum is formed in the type of the tile.
SUM_LENGTH = 512
# Width of the strips in which a scatter is summed: bounds the temporary of one product.
STRIP = 1024


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations (M2) of each feature, and how many of its values are missing."""

    count: Array
    mean: Array
    m2: Array
    missing: Array

    @classmethod
    def zero(cls, n_features: int) -> Moments:
        """Moments of no samples."""
        whole, real = np.zeros(n_features, np.int64), np.zeros(n_features)
        return cls(whole, real, real.copy(), whole.copy())

    @classmethod
    def concatenate(cls, parts: list[Moments]) -> Moments:
        """Join the moments of disjoint sets of features."""
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("count", "mean", "m2", "missing")))

    def variance(self, n_samples: int) -> Array:
        """M2 / (n_samples - 1): the variance of each feature when missing values stand at the mean."""
        return self.m2 / (n_samples - 1)


def combine_moments(a: Moments, b: Moments) -> Moments:
    """Merge the moments of two disjoint sets of samples.

    mean = mean_a + d n_b / n,   M2 = M2_a + M2_b + d^2 n_a n_b / n,   d = mean_b - mean_a,   n = n_a + n_b

    References: Chan, Golub & LeVeque (1983), Am. Stat. 37, eq. 1.3.
    """
    n = a.count + b.count
    share = b.count / np.maximum(n, 1)
    delta = b.mean - a.mean
    return Moments(
        count=n,
        mean=a.mean + delta * share,
        m2=a.m2 + b.m2 + delta**2 * (a.count * share),
        missing=a.missing + b.missing,
    )


def centre_by_own_mean(raw: Array, T: Array, *, gaps: bool = False) -> Moments:
    """Write the columns of raw (samples x features), centred, into T, and return the moments that they had.

    The first value is taken off before the mean is formed: a mean 10^6 times the deviation then costs no digits,
    and a constant column comes out exactly zero. With `gaps`, NaN counts as missing and stands at the mean, zero.
    """
    n_rows, n_features = raw.shape
    missing = np.zeros(n_features, np.int64)
    absent: Array | None = None
    if gaps:
        absent = np.isnan(raw)
        first = np.take_along_axis(raw, absent.argmin(axis=0)[None, :], axis=0)[0].astype(T.dtype)
        first[np.isnan(first)] = 0
        missing = absent.sum(axis=0, dtype=np.int64)
    else:
        first = raw[0].astype(T.dtype)
    np.subtract(raw, first, out=T, dtype=T.dtype, casting="unsafe")
    if absent is not None:
        T[absent] = 0
    count = n_rows - missing
    # Sums in the tile's own type go over a few rows only; those of many rows are float64.
    parts = [T[i : i + SUM_LENGTH] for i in range(0, n_rows, SUM_LENGTH)]
    total = sum((np.ones(len(part), T.dtype) @ part).astype(np.float64) for part in parts)
    mean = total / np.maximum(count, 1)
    T -= mean.astype(T.dtype)
    if absent is not None:
        T[absent] = 0
    m2 = np.asarray(sum(np.einsum("ij,ij->j", part, part).astype(np.float64) for part in parts))
    _not_lost(m2, T)
    return Moments(count, first + mean, m2, missing)


def _not_lost(m2: Array, T: Array) -> None:
    """Sum squares again, in place, where they may have been too small for the type of the tile: as float64.

    Squares that are too small even for that leave the smallest positive number: a feature that varies is not constant.
    """
    small = m2 < len(T) * np.finfo(T.dtype).tiny / np.finfo(T.dtype).eps
    if small.any():
        for j in np.flatnonzero(small & T.any(axis=0)):
            column = T[:, j].astype(np.float64)
            m2[j] = max(float(column @ column), float(np.finfo(np.float64).tiny))


def between_means(a: Moments, b: Moments) -> Array:
    """Return the one row whose scatter is the term between two means, sqrt(n_a n_b / n) (mean_b - mean_a).

    A statistic of rows about their mean is the sum of those of two parts about theirs, and that of this row.
    """
    n_a, n_b = int((a.count + a.missing)[0]), int((b.count + b.missing)[0])
    return np.asarray(np.sqrt(n_a * n_b / (n_a + n_b)) * (b.mean - a.mean))[None, :]


class Statistic:
    """What one sweep computes: a value with a true zero, and sums that merge by `+`.

    Attributes
    ----------
    wants_gaps : whether `update` gets the missing entries of the tile, which are zero in it, as one more argument.
    """

    wants_gaps: bool = False

    def tile_length(self, n_full: int, itemsize: int) -> int:
        """Rows of A that one update should get: a tile of about TILE_BYTES, a multiple of 8."""
        row = n_full * itemsize
        fits = max(TILE_BYTES // row, min(GOOD_TILE_LENGTH, LARGE_TILE_BYTES // row)) // 8 * 8
        return int(np.clip(fits, MIN_TILE_LENGTH, SCATTER_TILE_LENGTH))

    def zero(self, n_full: int) -> Any:
        """Return the value of no rows, for rows of length N = n_full."""
        raise NotImplementedError

    def update(self, value: Any, A: Array, start: int) -> None:
        """Add the rows of A, which start at row `start` of the whole, to value in place."""
        raise NotImplementedError

    def combine(self, a: Any, b: Any) -> Any:
        """Merge the values of two disjoint sets of rows, a before b."""
        return a + b

    def finish(self, value: Any, start: int) -> Any:
        """Return what a partition, whose rows start at `start`, hands on."""
        return value


class NoStatistic(Statistic):
    """Nothing beside the moments that the first sweep collects."""

    def zero(self, n_full: int) -> int:
        return 0

    def update(self, value: int, A: Array, start: int) -> None:
        pass


class Scatter(Statistic):
    """The lower triangle of A'A (N x N): scatter of the features, or Gram matrix of the samples."""

    def tile_length(self, n_full: int, itemsize: int) -> int:
        return SCATTER_TILE_LENGTH * 4 // itemsize // (1 if n_full <= 4 * STRIP else 2)

    def zero(self, n_full: int) -> Array:
        return np.zeros((n_full, n_full))

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add A'A, in strips, on and below the diagonal."""
        for i in range(0, A.shape[1], STRIP):
            strip = A[:, i : i + STRIP]
            value[i : i + STRIP, i : i + STRIP] += strip.T @ strip
            if i:
                value[i : i + STRIP, :i] += strip.T @ A[:, :i]


def symmetric(lower: Array) -> Array:
    """Copy the lower triangle of a square matrix onto its upper one, in place, and return it."""
    for i in range(0, len(lower), STRIP):
        block = lower[i : i + STRIP, i : i + STRIP]
        block[:] = np.tril(block) + np.tril(block, -1).T
        lower[i : i + STRIP, i + STRIP :] = lower[i + STRIP :, i : i + STRIP].T
    return lower


def add_product(total: Array, Y: Array, A: Array) -> None:
    """Add A'Y to total, which lies by column, by way of a buffer that is used again."""
    product = scratch("product", total.T.shape, A.dtype)
    np.matmul(Y.T, A, out=product)
    total.T[:] += product


@dataclass(frozen=True)
class Product(Statistic):
    """A'(A Q) for a thin block Q (N x b): one step of block power iteration. Lies by column: (A Q)'A is faster."""

    Q: Array

    def zero(self, n_full: int) -> Array:
        return np.zeros((n_full, self.Q.shape[1]), order="F")

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add A'(A Q)."""
        add_product(value, A @ self.Q, A)


@dataclass(frozen=True)
class ProductAndRows(Statistic):
    """A'(A Q), and beside it the rows of A Q in order, as a list of pieces."""

    Q: Array

    def zero(self, n_full: int) -> tuple[Array, list[Array]]:
        return np.zeros((n_full, self.Q.shape[1]), order="F"), []

    def update(self, value: tuple[Array, list[Array]], A: Array, start: int) -> None:
        """Add A'(A Q), and append A Q."""
        total, rows = value
        rows.append(A @ self.Q)
        add_product(total, rows[-1], A)

    def combine(self, a: tuple[Array, list[Array]], b: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
        """Sum the products, and join the rows."""
        return a[0] + b[0], a[1] + b[1]


@dataclass(frozen=True)
class Projection(Statistic):
    """The rows of A M (t x k) as a list of pieces in order, each row with its |a|^2 as one more column.

    With a `sink`, the rows of a partition go there as (start, rows), without |a|^2, and nothing is handed on.
    """

    M: Array
    sink: Callable[[int, Array], None] | None = None

    def zero(self, n_full: int) -> list[Array]:
        return []

    def update(self, value: list[Array], A: Array, start: int) -> None:
        """Append the rows of this tile."""
        squares = [] if self.sink else [np.einsum("ij,ij->i", A, A)[:, None]]
        value.append(np.concatenate([A @ self.M, *squares], axis=1))

    def finish(self, value: list[Array], start: int) -> list[Array]:
        """Join the pieces, and give them to the sink if there is one."""
        return _handed_on(value, start, self.sink)


@dataclass(frozen=True)
class RowsOf(Statistic):
    """What a function makes of the rows of A, as a list of pieces in order.

    With a `sink`, the rows of a partition go there as (start, rows), and nothing is handed on.

    Parameters
    ----------
    most : rows of a tile, at most: fewer, where the function needs much memory for each.
    """

    function: Callable[[Array], Array]
    sink: Callable[[int, Array], None] | None = None
    most: int = SCATTER_TILE_LENGTH

    def tile_length(self, n_full: int, itemsize: int) -> int:
        return min(self.most, super().tile_length(n_full, itemsize))

    def zero(self, n_full: int) -> list[Array]:
        return []

    def update(self, value: list[Array], A: Array, start: int) -> None:
        """Append what becomes of this tile."""
        value.append(self.function(A))

    def finish(self, value: list[Array], start: int) -> list[Array]:
        """Join the pieces, and give them to the sink if there is one."""
        return _handed_on(value, start, self.sink)


def _handed_on(pieces: list[Array], start: int, sink: Callable[[int, Array], None] | None) -> list[Array]:
    rows = np.concatenate(pieces)
    if sink is None:
        return [rows]
    sink(start, rows)
    return []


@dataclass(frozen=True)
class CrossProduct(Statistic):
    """A'M (N x k) for M (all rows of A x k), with the sums of squares of A's columns as one more column."""

    M: Array

    def zero(self, n_full: int) -> Array:
        return np.zeros((n_full, self.M.shape[1] + 1))

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add the share of this tile."""
        value[:, :-1] += A.T @ self.M[start : start + len(A)]
        value[:, -1] += np.einsum("ij,ij->j", A, A)

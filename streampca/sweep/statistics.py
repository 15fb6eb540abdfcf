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

from streampca._typing import Array
from streampca.sources.scratch import scratch, scratch_like

# Target size of one tile of a block product: near the L2 cache, and long enough for the BLAS to run at speed.
TILE_BYTES = 2 << 20
MIN_TILE_LENGTH = 64
# Rows worth having even where the tile then outgrows that cache: adding N x b sums costs little beside their product.
GOOD_TILE_LENGTH = 128
LARGE_TILE_BYTES = 12 << 20
# A tile of the scatter is long, so that adding N x N float64 sums costs little beside the product itself.
SCATTER_TILE_LENGTH = 2048
# Size of a strip of columns that is centred at a time, in float64: it stays in the cache.
CENTRE_BYTES = 1 << 19
# Entries of the part of a tile that probes take at a time: with eight columns, OpenBLAS multiplies up to 10^6 numbers
# without packing them first, which takes half the time.
EXACT_SIZE = 120_000
MIN_EXACT_LENGTH = 32
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

    Sums are float64 whatever the type of T: scales and the total variance must not carry the rounding of the tile. The
    first value is subtracted before the mean is formed: a mean 10^6 times the deviation then costs no digits, and a
    constant column comes out exactly zero. With `gaps`, NaN counts as missing and stands at the mean, zero.
    """
    n_rows, n_features = raw.shape
    moments = Moments.zero(n_features)
    if abs(raw.strides[0]) < abs(raw.strides[1]):
        width = max(1, CENTRE_BYTES // (8 * n_rows))
        for start in range(0, n_features, width):
            _centre(raw, T, slice(start, start + width), n_rows, gaps, moments)
    else:
        _centre(raw, T, slice(0, n_features), max(8, CENTRE_BYTES // (8 * n_features)), gaps, moments)
    return moments


def _centre(raw: Array, T: Array, columns: slice, step: int, gaps: bool, moments: Moments) -> None:
    """Centre some columns, a few rows at a time, and write their moments to their places."""
    raw, T = raw[:, columns], T[:, columns]
    blocks = [slice(i, i + step) for i in range(0, len(raw), step)]
    first = raw[0].astype(np.float64)
    if gaps:
        absent = np.isnan(raw)
        first = np.take_along_axis(raw, absent.argmin(axis=0)[None, :], axis=0)[0].astype(np.float64)
        first[np.isnan(first)] = 0
        moments.missing[columns] = absent.sum(axis=0)
    count = len(raw) - moments.missing[columns]
    total = np.zeros(raw.shape[1])
    for rows in blocks:
        D = scratch_like("centred", raw[rows], np.float64)
        subtract(raw[rows], first, D, gaps)
        total += np.ones(len(D)) @ D
    centre = first + total / np.maximum(count, 1)
    m2 = np.zeros(raw.shape[1])
    for rows in blocks:
        D = T[rows] if T.dtype == np.float64 else scratch_like("centred", raw[rows], np.float64)
        subtract(raw[rows], centre, D, gaps)
        m2 += np.einsum("ij,ij->j", D, D)
        if D.dtype != T.dtype:
            T[rows] = D
    # Squares that are too small for float64: a feature that varies is not constant.
    tiny = np.finfo(np.float64).tiny
    small = m2 < tiny
    if small.any():
        m2[small & T.any(axis=0)] = tiny
    moments.count[columns], moments.mean[columns], moments.m2[columns] = count, centre, m2


def subtract(raw: Array, mean: Array, out: Array, gaps: bool = False) -> None:
    """Write raw - mean; missing values become zero.

    In float32 the mean is taken off in two parts, so that nothing is lost: raw - high is exact where the two are close
    (Sterbenz), and low is the rest.
    """
    high = mean.astype(out.dtype)
    np.subtract(raw, high, out=out, dtype=out.dtype, casting="unsafe")
    if out.dtype != np.float64:
        out -= (mean - high).astype(out.dtype)
    if gaps:
        out[np.isnan(out)] = 0


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
    wants_exact : whether it gets a function that returns a part of the tile (rows, columns) in float64, before it was
        rounded to the type of the tile.
    """

    wants_gaps: bool = False
    wants_exact: bool = False

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


Exact = Callable[[slice, slice], Array]


@dataclass(frozen=True)
class Probed(Statistic):
    """A statistic of float32 tiles, and H = A'(A G) in float64 for a few random vectors G (N x p)."""

    statistic: Statistic
    G: Array
    wants_exact = True

    def tile_length(self, n_full: int, itemsize: int) -> int:
        return self.statistic.tile_length(n_full, itemsize)

    def zero(self, n_full: int) -> tuple[Any, Array]:
        return self.statistic.zero(n_full), np.zeros((n_full, self.G.shape[1]), order="F")

    def update(self, value: tuple[Any, Array], A: Array, start: int, exact: Exact | None = None) -> None:
        """Add the share of this tile to both."""
        # First, while the tile is in the cache.
        self.statistic.update(value[0], A, start)
        step = max(MIN_EXACT_LENGTH, EXACT_SIZE // A.shape[1])
        for i in range(0, len(A), step):
            rows = slice(i, min(i + step, len(A)))
            B = A[rows] if exact is None else exact(rows, slice(0, A.shape[1]))
            add_product(value[1], B @ self.G, B)

    def combine(self, a: tuple[Any, Array], b: tuple[Any, Array]) -> tuple[Any, Array]:
        """Combine both."""
        return self.statistic.combine(a[0], b[0]), a[1] + b[1]


@dataclass(frozen=True)
class ProbedRows(Statistic):
    """`ProductAndRows` of float32 tiles, and in float64 K = A'R, the rows of A G, and R, for random G and R.

    G (N x p) is given. R (rows of A x p) is drawn tile by tile from the seed and the place of the tile.
    """

    statistic: ProductAndRows
    G: Array
    seed: int
    wants_exact = True

    def zero(self, n_full: int) -> tuple[Any, Array, list[Array], list[Array]]:
        return self.statistic.zero(n_full), np.zeros((n_full, self.G.shape[1]), order="F"), [], []

    def update(
        self, value: tuple[Any, Array, list[Array], list[Array]], A: Array, start: int, exact: Exact | None = None
    ) -> None:
        """Add the share of this tile, and append its rows."""
        inner, K, rows, drawn = value
        self.statistic.update(inner, A, start)
        # Float32 takes half the memory until the end; these values are exact in both types.
        R = np.random.default_rng([self.seed, start]).standard_normal((len(A), self.G.shape[1]), np.float32)
        Y, R64 = np.zeros(R.shape), R.astype(np.float64)
        transposed = np.ascontiguousarray(R64.T)
        # Packed genotypes are cut at multiples of four.
        step = max(MIN_EXACT_LENGTH, EXACT_SIZE // max(1, len(A)) // 32 * 32)
        for i in range(0, A.shape[1], step):
            columns = slice(i, min(i + step, A.shape[1]))
            B = A[:, columns] if exact is None else exact(slice(0, len(A)), columns)
            Y += B @ self.G[columns]
            # Whichever reads B along its rows is faster.
            if B.flags.f_contiguous:
                K[columns] += B.T @ R64
            else:
                K.T[:, columns] += transposed @ B
        rows.append(Y)
        drawn.append(R)

    def combine(self, a: Any, b: Any) -> Any:
        """Combine the sums, and join the rows."""
        return self.statistic.combine(a[0], b[0]), a[1] + b[1], a[2] + b[2], a[3] + b[3]


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

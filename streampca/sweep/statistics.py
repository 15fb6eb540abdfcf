"""Statistics of rows that merge exactly: moments, scatter, block products, projections.

Everything here is plain NumPy. The rows are those of A (t x N): samples when the matrix is cut along samples, features
when it is cut along features, so that one `Scatter` is the covariance of the one case and the Gram matrix of the other.

A statistic has a true zero, `update` (adds the rows of one tile to a value in place) and `combine` (a new value from
two). If the mean is not known yet, rows are centred by the means of parts; differences of means are additional rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Self

import numpy as np
from threadpoolctl import threadpool_info

from streampca._typing import Array
from streampca.sources.scratch import scratch, scratch_like

# Target size of one tile of a block product: near the L2 cache, and long enough for the BLAS to run at speed.
TILE_BYTES = 2 << 20
MIN_TILE_LENGTH = 64
# Rows of a tile even if it exceeds that cache: adding N x b sums then costs little relative to their product.
GOOD_TILE_LENGTH = 128
LARGE_TILE_BYTES = 12 << 20
# A tile of the scatter is long, so that adding N x N float64 sums costs little relative to the product.
SCATTER_TILE_LENGTH = 2048
# Size of a strip of columns that is centred at a time, in float64: it stays in the cache.
CENTRE_BYTES = 1 << 19
# Width of the strips in which a scatter is summed: bounds the temporary of one product.
STRIP = 1024
# Kernels of OpenBLAS with which products of up to 10^6 multiplications take 10 to 50% less time.
AVX512 = ("SkylakeX", "Cooperlake", "SapphireRapids")
SMALL_PRODUCT = 10**6

# Parts of a matrix: rows, columns, values.
Parts = Iterator[tuple[slice, slice, Array]]


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations (M2) of each feature, and its number of missing values."""

    count: Array
    mean: Array
    m2: Array
    missing: Array

    @classmethod
    def zero(cls, n_features: int) -> Moments:
        """Moments of no samples."""
        count, mean = np.zeros(n_features, np.int64), np.zeros(n_features)
        return cls(count, mean, mean.copy(), count.copy())

    @classmethod
    def concatenate(cls, parts: list[Moments]) -> Moments:
        """Join the moments of disjoint sets of features."""
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def variance(self, n_samples: int) -> Array:
        """M2 / (n_samples - 1): the variance of each feature with missing values at the mean."""
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


def centre_by_own_mean(raw: Array, T: Array, *, missing: bool = False) -> Moments:
    """Write the columns of raw (samples x features), centred, into T, and return their moments.

    With `missing`, NaN are missing entries and become zero, the mean.
    """
    if T is not raw:
        T[:] = raw
    moments = own_means(T, missing=missing)
    for _ in centred_parts(T, T, moments.mean, m2=moments.m2, missing=missing):
        pass
    return moments


def own_means(T: Array, *, missing: bool = False) -> Moments:
    """Return count, mean and missing values of the columns of T; the sums of squares are zero.

    Sums are float64 for any type of T: scales and the total variance must not carry the rounding of the tile. Of
    float64 values the first is subtracted before the mean is formed: a mean 10^6 times the deviation then costs no
    digits, and a constant column is exactly zero. Float64 sums of float32 values do not need this.
    """
    n_rows, n_features = T.shape
    moments = Moments.zero(n_features)
    absent = np.isnan(T) if missing else np.zeros((1, n_features), bool)
    moments.missing[:] = absent.sum(axis=0)
    moments.count[:] = n_rows - moments.missing
    if T.dtype == np.float64:
        first = np.take_along_axis(T, absent.argmin(axis=0)[None, :], axis=0)[0]
        first[np.isnan(first) & missing] = 0
        total = np.zeros(n_features)
        for rows, columns in _cached_parts(T):
            D = scratch_like("centred", T[rows, columns], np.float64)
            subtract(T[rows, columns], first[columns], D, missing)
            total[columns] += np.ones(len(D)) @ D
    else:
        first, total = 0.0, T.sum(axis=0, dtype=np.float64, where=~absent if missing else True)
    moments.mean[:] = first + total / np.maximum(moments.count, 1)
    return moments


def centred_parts(
    raw: Array, T: Array, mean: Array, *, scale: Array | None = None, m2: Array | None = None, missing: bool = False,
    whole_rows: bool = False,
) -> Parts:  # fmt: skip
    """Write (raw - mean) / scale into T; yield it part by part in float64, as (rows, columns, part).

    Parameters
    ----------
    raw : values of the columns of T; may be T itself.
    m2 : sums of squared deviations, to which those of raw are added.
    missing : whether NaN become zero.
    whole_rows : whether parts are complete rows, even if T is stored by column.
    """
    for rows, columns in _cached_parts(T, whole_rows):
        part = T[rows, columns]
        D = part if part.dtype == np.float64 else scratch_like("centred", part, np.float64)
        subtract(raw[rows, columns], mean[columns], D, missing)
        if m2 is not None:
            m2[columns] += np.einsum("ij,ij->j", D, D)
        if scale is not None:
            D *= 1.0 / scale[columns]
        if D is not part:
            part[:] = D
        yield rows, columns, D
    if m2 is not None:
        # A feature whose squares underflow still varies.
        tiny = np.finfo(np.float64).tiny
        small = m2 < tiny
        if small.any():
            m2[small & T.any(axis=0)] = tiny


def _cached_parts(T: Array, whole_rows: bool = False) -> Iterator[tuple[slice, slice]]:
    """Cut T into parts that fit the cache in float64: columns if it is stored by column, else rows."""
    n_rows, n_features = T.shape
    if abs(T.strides[0]) < abs(T.strides[1]) and not whole_rows:
        width = max(1, CENTRE_BYTES // (8 * n_rows))
        yield from ((slice(0, n_rows), slice(i, min(i + width, n_features))) for i in range(0, n_features, width))
    else:
        step = max(8, CENTRE_BYTES // (8 * n_features))
        yield from ((slice(i, min(i + step, n_rows)), slice(0, n_features)) for i in range(0, n_rows, step))


def subtract(raw: Array, mean: Array, out: Array, missing: bool = False) -> None:
    """Write raw - mean to out; with `missing`, NaN become zero.

    A float32 mean is subtracted in two parts, so that no digit is lost: raw - high is exact where the two are close
    (Sterbenz), and low is the rest.
    """
    high = mean.astype(out.dtype)
    np.subtract(raw, high, out=out, dtype=out.dtype, casting="unsafe")
    if out.dtype != np.float64:
        out -= (mean - high).astype(out.dtype)
    if missing:
        out[np.isnan(out)] = 0


def between_means(a: Moments, b: Moments) -> Array:
    """Return the row sqrt(n_a n_b / n) (mean_b - mean_a), whose scatter is the term between two means.

    The scatter of rows about their mean is that of two parts about their own means, plus that of this row.
    """
    n_a, n_b = int((a.count + a.missing)[0]), int((b.count + b.missing)[0])
    return np.asarray(np.sqrt(n_a * n_b / (n_a + n_b)) * (b.mean - a.mean))[None, :]


class Statistic:
    """What one sweep computes: a value with a true zero that is updated by tiles and merged.

    Attributes
    ----------
    wants_missing : whether `update` gets the missing entries of the tile, which are zero in it, as one more argument.
    wants_exact : whether it also gets the tile part by part in float64, before rounding to the type of the tile. The
        tile is complete after the last part.
    """

    wants_missing: bool = False
    wants_exact: bool = False

    def tile_length(self, n_full: int, itemsize: int) -> int:
        """Return the number of rows of A in a tile: about TILE_BYTES, a multiple of 8."""
        row = n_full * itemsize
        fits = max(TILE_BYTES // row, min(GOOD_TILE_LENGTH, LARGE_TILE_BYTES // row)) // 8 * 8
        return int(np.clip(fits, MIN_TILE_LENGTH, SCATTER_TILE_LENGTH))

    def zero(self, n_full: int) -> Any:
        """Return the value of no rows, for rows of length N = n_full."""
        raise NotImplementedError

    def update(self, value: Any, A: Array, start: int) -> None:
        """Add the rows of A, the first of which is row `start` of the block axis, to value in place."""
        raise NotImplementedError

    def combine(self, a: Any, b: Any) -> Any:
        """Merge the values of two disjoint sets of rows, a before b: sums are added, lists joined, tuples merged."""
        return tuple(map(self.combine, a, b)) if isinstance(a, tuple) else a + b

    def finish(self, value: Any, start: int) -> Any:
        """Return the value of a partition that begins at row `start`, as it is merged."""
        return value


@dataclass
class Summed:
    """A record of sums: adding two adds each field; a field that is None stays None."""

    def __add__(self, other: Self) -> Self:
        pairs = [(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)]
        return type(self)(*(None if a is None or b is None else a + b for a, b in pairs))


class NoStatistic(Statistic):
    """Nothing but the moments that the first sweep collects."""

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


@cache
def _multiplies_small_matrices() -> bool:
    """Whether the BLAS has kernels for small matrices, which do not pack operands: OpenBLAS with AVX-512."""
    return any(library.get("architecture") in AVX512 for library in threadpool_info())


def _strips(A: Array, width: int) -> list[slice]:
    """Cut the columns of A for products with `width` columns: strips small enough for the kernels of small matrices."""
    n_columns = A.shape[1]
    step = n_columns
    if _multiplies_small_matrices():
        step = max(16, SMALL_PRODUCT // max(1, len(A) * width) // 16 * 16)
    return [slice(i, min(i + step, n_columns)) for i in range(0, n_columns, step)]


def product(A: Array, Q: Array) -> Array:
    """Return A Q for a thin block Q."""
    first, *others = _strips(A, Q.shape[1])
    Y = A[:, first] @ Q[first]
    for strip in others:
        Y += A[:, strip] @ Q[strip]
    return np.asarray(Y)


def add_product(total: Array, Y: Array, A: Array) -> None:
    """Add A'Y to total, which is stored by column, through a buffer."""
    transposed = scratch("product", total.T.shape, A.dtype)
    for strip in _strips(A, Y.shape[1]):
        np.matmul(Y.T, A[:, strip], out=transposed[:, strip])
    total.T[:] += transposed


@dataclass(frozen=True)
class Product(Statistic):
    """A'(A Q) for a thin block Q (N x b): one step of block power iteration.

    The value is stored by column, because (A Q)'A is faster.
    """

    Q: Array

    def zero(self, n_full: int) -> Array:
        return np.zeros((n_full, self.Q.shape[1]), order="F")

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add A'(A Q)."""
        add_product(value, product(A, self.Q), A)


@dataclass(frozen=True)
class ProductAndRows(Statistic):
    """A'(A Q), and the rows of A Q in order, as a list of pieces."""

    Q: Array

    def zero(self, n_full: int) -> tuple[Array, list[Array]]:
        return np.zeros((n_full, self.Q.shape[1]), order="F"), []

    def update(self, value: tuple[Array, list[Array]], A: Array, start: int) -> None:
        """Add A'(A Q), and append A Q."""
        total, rows = value
        rows.append(product(A, self.Q))
        add_product(total, rows[-1], A)


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

    def update(self, value: tuple[Any, Array], A: Array, start: int, exact: Parts | None = None) -> None:
        """Add the products of this tile; parts of the tile in float64 are complete rows."""
        for _, _, B in exact or [(None, None, A)]:
            add_product(value[1], product(B, self.G), B)
        self.statistic.update(value[0], A, start)


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
        self, value: tuple[Any, Array, list[Array], list[Array]], A: Array, start: int, exact: Parts | None = None
    ) -> None:
        """Add the products of this tile, and append its rows."""
        inner, K, products, drawn = value
        # Float32 takes half the memory until the end; these values are exact in both types.
        R = np.random.default_rng([self.seed, start]).standard_normal((len(A), self.G.shape[1]), np.float32)
        Y, R64 = np.zeros(R.shape), R.astype(np.float64)
        transposed = np.ascontiguousarray(R64.T)
        for rows, columns, B in exact or [(slice(None), slice(None), A)]:
            Y[rows] += B @ self.G[columns]
            # The form that reads B along its rows is faster.
            if B.flags.f_contiguous:
                K[columns] += B.T @ R64[rows]
            else:
                K.T[:, columns] += transposed[:, rows] @ B
        products.append(Y)
        drawn.append(R)
        self.statistic.update(inner, A, start)


class Pieces(Statistic):
    """One row for each row of A, as a list of pieces in order.

    A `sink` is called with (start, rows) of each partition, and the value stays empty.
    """

    sink: Callable[[int, Array], None] | None = None

    def zero(self, n_full: int) -> list[Any]:
        return []

    def finish(self, value: list[Any], start: int) -> list[Any]:
        """Join the pieces, and pass them to the sink if there is one."""
        rows = np.concatenate(value)
        if self.sink is None:
            return [rows]
        self.sink(start, rows)
        return []


@dataclass(frozen=True)
class Projection(Pieces):
    """The rows of A M (t x k); without a sink, each with |a|^2 as one more column."""

    M: Array
    sink: Callable[[int, Array], None] | None = None

    def update(self, value: list[Array], A: Array, start: int) -> None:
        """Append the rows of this tile."""
        squares = [] if self.sink else [np.einsum("ij,ij->i", A, A)[:, None]]
        value.append(np.concatenate([A @ self.M, *squares], axis=1))


@dataclass(frozen=True)
class RowsOf(Pieces):
    """A function of the rows of A.

    Parameters
    ----------
    most : largest number of rows of a tile; small if the function needs much memory for each.
    """

    function: Callable[[Array], Array]
    sink: Callable[[int, Array], None] | None = None
    most: int = SCATTER_TILE_LENGTH

    def tile_length(self, n_full: int, itemsize: int) -> int:
        return min(self.most, super().tile_length(n_full, itemsize))

    def update(self, value: list[Array], A: Array, start: int) -> None:
        """Append the function of this tile."""
        value.append(self.function(A))


@dataclass(frozen=True)
class CrossProduct(Statistic):
    """A'M (N x k) for M (all rows of A x k), with the sums of squares of A's columns as one more column."""

    M: Array

    def zero(self, n_full: int) -> Array:
        return np.zeros((n_full, self.M.shape[1] + 1))

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add the products of this tile."""
        value[:, :-1] += A.T @ self.M[start : start + len(A)]
        value[:, -1] += np.einsum("ij,ij->j", A, A)

"""Landmarks, the few rows that a Nystrom approximation uses: drawn uniformly, by k-means, or by leverage.

k-means reads all rows once or a few times, a draw by leverage reads them once, and a uniform draw reads only the chunks
that contain the drawn rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streampca._typing import Array
from streampca.solvers.draw import Draw
from streampca.solvers.kernel.kernels import Kernel, strips
from streampca.solvers.kernel.nystrom import kernel_matrix
from streampca.sources.scratch import scratch
from streampca.sweep.matrix import Matrix
from streampca.sweep.statistics import Pieces, Statistic, Summed
from streampca.sweep.sweep import Sweeps, one_blas_thread

# Largest number of ranges of chunks, each a task: a task costs as much as reading many small chunks between two ranges.
MAX_RANGES = 256
BATCHES = 8  # mini-batches of k-means, one read of the data in all
ROUNDS = 3  # of Lloyd's algorithm, if there are fewer partitions than batches
# m landmarks are for m / (4 log m) directions: scores sum to twice that number, so that each direction is chosen about
# log m times. If directions are chosen less often, some are missed by chance, and their rows get high scores.
OVERSAMPLE = 4
ROUNDINGS = 8  # least residual of k(x, x), in multiples of its rounding


# ---------------------------------------------------------------- rows by their index


@dataclass(frozen=True)
class Chosen(Pieces):
    """Copies of the rows of A with these indices, ascending."""

    rows: Array

    def update(self, value: list[Array], A: Array, start: int) -> None:
        """Append the rows of this tile that are chosen."""
        first, last = np.searchsorted(self.rows, (start, start + len(A)))
        if last > first:
            value.append(A[self.rows[first:last] - start])


def sample_rows(sweeps: Sweeps, rows: Array) -> Array:
    """Return the rows of A with these indices, in this order, (len(rows), d); reads only their chunks."""
    matrix = sweeps.matrix
    sample = np.empty((len(rows), matrix.n_full), matrix.dtype)
    if len(rows) == 0:
        return sample
    order = np.argsort(rows, kind="stable")
    ascending = np.asarray(rows)[order]
    part = replace(sweeps, matrix=_holding(matrix, ascending), stage="landmarks", note="", seconds=[], bytes_read=0)
    pieces, _ = part.run(Chosen(ascending), "landmarks", check=True)
    sweeps.bytes_read += part.bytes_read
    sample[order] = np.concatenate(pieces)
    return sample


def _holding(matrix: Matrix, rows: Array) -> Matrix:
    """Return the matrix with partitions that contain these rows, ascending: runs of complete chunks, not too long.

    The blocks of a Dask array are not divided. Data that are kept in memory are read in the ranges of other sweeps.
    """
    starts, stops = np.array(matrix.partitions).T
    within = np.searchsorted(starts, rows, side="right") - 1
    if matrix.source.is_graph:
        return replace(matrix, partitions=tuple(matrix.partitions[p] for p in np.unique(within)))
    if matrix.source.keeps_reads:
        length = slab_length = matrix.slab_length
        origins, ends = starts[within], stops[within]
        pieces = (rows - origins) // length
    else:
        length = matrix.source.chunks[0]
        # Slabs that are shorter than a chunk keep their length, for which there is memory.
        slab_length = matrix.slab_length if matrix.slab_length < length else matrix.slab_length // length * length
        origins, ends = np.zeros_like(rows), np.full_like(rows, matrix.n_block)
        pieces = rows // length
        within = pieces // max(1, int((stops - starts).max()) // length)
    steps = np.diff(pieces)
    # If there are too many runs, those with the fewest chunks between them are read as one.
    longest = max(1, int(np.sort(steps)[-MAX_RANGES])) if len(steps) >= MAX_RANGES else 1
    cuts = np.flatnonzero((steps > longest) | (np.diff(within) > 0)) + 1
    first, last = np.append(0, cuts), np.append(cuts, len(rows)) - 1
    begin = origins[first] + pieces[first] * length
    end = np.minimum(origins[last] + (pieces[last] + 1) * length, ends[last])
    ranges = tuple((int(a), int(b)) for a, b in zip(begin, end, strict=True))
    return replace(matrix, partitions=ranges, slab_length=slab_length)


def draw_rows(n: int, count: int, seed: int | list[int]) -> Array:
    """Return `count` distinct rows of n, drawn uniformly, in random order."""
    return np.random.default_rng(seed).choice(n, count, replace=False)


# ---------------------------------------------------------------- k-means


@dataclass
class CentreSums(Summed):
    """Sum (m, d) and number (m,) of the rows nearest to each centre."""

    sums: Array
    counts: Array


@dataclass(frozen=True)
class NearestCentres(Statistic):
    """Sums over the rows nearest to each of some centres (m, d), in the type of the tiles."""

    centres: Array

    def zero(self, n_full: int) -> CentreSums:
        """Return empty sums."""
        return CentreSums(np.zeros((len(self.centres), n_full)), np.zeros(len(self.centres), np.int64))

    def update(self, value: CentreSums, A: Array, start: int) -> None:  # noqa: ARG002
        """Add each row to the sum of its centre: one product with a sparse matrix of ones."""
        # scipy.sparse is slow to load, and other models do without it.
        from scipy.sparse import csr_array

        nearest = self.nearest(A)
        order = np.argsort(nearest, kind="stable")
        first = np.flatnonzero(np.diff(nearest[order], prepend=-1))
        bounds = np.append(first, len(A))
        ones = csr_array((np.ones(len(A)), order, bounds), shape=(len(first), len(A)))
        own = nearest[order[first]]
        value.sums[own] += ones @ A
        value.counts[own] += np.diff(bounds)

    def nearest(self, A: Array) -> Array:
        """Return the index of the centre nearest to each row: where x'c - |c|^2 / 2 is largest."""
        nearest = np.empty(len(A), np.int64)
        half = np.einsum("ij,ij->i", self.centres, self.centres) / 2
        for rows in strips(len(A), len(half), A.dtype):
            part = A[rows]
            products = scratch("products", (len(part), len(half)), A.dtype)
            np.matmul(part, self.centres.T, out=products)
            products -= half
            products.argmax(axis=1, out=nearest[rows])
        return nearest


def kmeans_landmarks(sweeps: Sweeps, start: Array, seed: int) -> Array:
    """Return the centres (m, d) of k-means from a start, in one read of the data, or a few if there are few partitions.

    The partitions are divided into mini-batches, in random order. Each centre is the mean of all rows assigned to it so
    far: c += (sum - count c) / count so far. If there are too few partitions, each round takes all rows and ignores the
    counts of earlier rounds (Lloyd). Centres without rows do not move.

    References: Sculley (2010), Proc. WWW, alg. 1.
    """
    matrix = sweeps.matrix
    dealt = len(matrix.partitions) >= BATCHES
    if dealt:
        batches = [matrix.partitions[b::BATCHES] for b in np.random.default_rng(seed).permutation(BATCHES)]
    else:
        batches = [matrix.partitions] * ROUNDS
    part = replace(sweeps, stage="landmarks", note="", seconds=[], bytes_read=0)
    centres, totals = start.astype(np.float64), np.zeros(len(start), np.int64)
    for partitions in batches:
        part.matrix = replace(matrix, partitions=partitions)
        batch, _ = part.run(NearestCentres(centres.astype(matrix.dtype)), "landmarks", check=True)
        totals = totals + batch.counts if dealt else batch.counts
        moves = batch.sums - batch.counts[:, None] * centres
        centres += moves / np.maximum(totals, 1)[:, None]
    sweeps.seconds += [sum(part.seconds)] if dealt else part.seconds
    sweeps.bytes_read += part.bytes_read
    return centres.astype(matrix.dtype)


def seed_centres(sample: Array, count: int, seed: int) -> Array:
    """Return rows of the sample to start k-means from, by greedy k-means++; all distinct rows if these are fewer.

    References: Arthur & Vassilvitskii (2007), Proc. SODA.
    """
    # scikit-learn is slow to load, and other landmarks do without it.
    from sklearn.cluster import kmeans_plusplus

    # Adding zero gives zeros one sign.
    different = np.sort(np.unique(sample + 0, axis=0, return_index=True)[1])
    if len(different) <= count:
        return np.asarray(sample[different])
    with one_blas_thread:
        _, chosen = kmeans_plusplus(sample, count, random_state=seed)
    # Rows that differ by less than rounding may be drawn twice.
    return np.asarray(sample[np.unique(chosen)])


# ---------------------------------------------------------------- ridge leverage


@dataclass(frozen=True)
class Leverage:
    """Scores of rows of a set, from a few of these, S:

        l(x) = (k(x, x) - k_S(x)' (K_SS + ridge P)^-1 k_S(x)) / ridge

    This is the ridge leverage of x in the set, or more where S does not represent all of it. P contains the probability
    with which each row of S was chosen from the set: a row with probability p represents 1 / p rows.

    Parameters
    ----------
    kernel : k.
    rows : (m, d) S, in the type of the tiles.
    factor : (m, m) B with B B' = (K_SS + ridge P)^-1, in that type too.
    ridge : above zero.
    """  # noqa: D400

    kernel: Kernel
    rows: Array
    factor: Array
    ridge: float

    @cached_property
    def _prepared(self) -> Array:
        return self.kernel.prepared(self.rows, self.rows.dtype)

    @classmethod
    def of(cls, kernel: Kernel, rows: Array, chances: Array, rank: int) -> Leverage:
        """Return the scores by these rows. The ridge is the sum of the eigenvalues beyond `rank`, divided by it.

        The eigenvalues are those of P^-1/2 K_SS P^-1/2, about those of the set. If that sum is zero up to rounding, the
        ridge is a small share of the sum of all.
        """
        roots = 1 / np.sqrt(chances)
        with one_blas_thread:
            values, U = np.linalg.eigh(kernel_matrix(kernel, rows) * np.outer(roots, roots))
        values = np.maximum(values, 0.0)
        trace, tail = float(values.sum()), float(values[: max(0, len(values) - rank)].sum())
        ridge = max(tail, float(np.sqrt(np.finfo(rows.dtype).eps)) * trace) / rank or 1.0
        factor = roots[:, None] * U / np.sqrt(values + ridge)
        return cls(kernel, rows, factor.astype(rows.dtype), ridge)

    def scores(self, A: Array) -> Array:
        """Return l of each row, (t,); always positive, unless k(x, x) is zero."""
        m, scores = len(self.rows), np.empty(len(A))
        least = ROUNDINGS * np.finfo(A.dtype).eps
        for rows in strips(len(A), m, A.dtype):
            part = A[rows]
            K = self.kernel.with_prepared(part, self._prepared, scratch("kernel", (len(part), m), A.dtype))
            inside = np.matmul(K, self.factor, out=scratch("products", (len(part), m), A.dtype))
            diagonal = np.maximum(self.kernel.diagonal(part).astype(np.float64), 0.0)
            residual = diagonal - np.einsum("ij,ij->i", inside, inside, dtype=np.float64)
            scores[rows] = np.fmax(residual, least * diagonal)
        scores /= self.ridge
        return np.nan_to_num(scores, copy=False, nan=0.0, posinf=np.finfo(np.float64).max)


def recursive_leverage(kernel: Kernel, sample: Array, count: int, seed: int) -> Leverage:
    """Return the leverage in a sample by about `count` of its rows, chosen by leverage in a part of it, recursively.

    The first set is `count` rows, all of which are in S with probability one. A set of twice the size is scored by S of
    its half. Probabilities are those within that half, not halved again: S represents fewer rows than are scored, so
    that scores are too high rather than too low. No leverage is above one. Then a new S is chosen from the larger set,
    with probabilities proportional to scores.

    References: Musco & Musco (2017), NIPS 30, alg. 2 and 3.
    """
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(sample))
    rank = math.ceil(count / (OVERSAMPLE * max(1.0, math.log(count))))
    size = min(count, len(sample))
    chosen, chances = order[:size], np.ones(size)
    while size < len(sample):
        size = min(2 * size, len(sample))
        by = Leverage.of(kernel, sample[chosen], chances, rank)
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            within = inclusion(np.minimum(by.scores(sample[order[:size]]), 1.0), count)
        taken = systematic(within, float(rng.random()))
        if len(taken):
            chosen, chances = order[taken], within[taken]
    return Leverage.of(kernel, sample[chosen], chances, rank)


def inclusion(scores: Array, count: int) -> Array:
    """Return probabilities min(1, c l) that sum to `count`; one for each positive score if these are fewer."""
    if np.count_nonzero(scores) <= count:
        return (scores > 0).astype(np.float64)
    share = scores / scores.max()
    falling = np.sort(share)[::-1]
    rest = np.cumsum(falling[::-1])[::-1][:count]
    # If the i largest have probability one, the others share count - i.
    factors = (count - np.arange(count)) / rest
    factor = factors[(factors * falling[:count] <= 1).argmax()]
    return np.asarray(np.minimum(share * factor, 1.0))


def systematic(chances: Array, begin: float) -> Array:
    """Return the indices chosen with these probabilities: where their running sum passes an integer.

    References: Madow (1949), Ann. Math. Stat. 20.
    """
    return np.flatnonzero(np.diff(np.floor(np.cumsum(chances) + begin), prepend=0.0) > 0)


@dataclass(frozen=True)
class LeverageDraw(Draw):
    """Rows drawn with probabilities proportional to their leverage.

    Parameters
    ----------
    leverage : scores in the sample.
    share : of all rows that are in the sample: a score times this is a score in all rows, which is at most one.
    """

    leverage: Leverage
    share: float

    def rates(self, A: Array) -> Array:
        """Return the leverage of each row, (1, t)."""
        return np.minimum(self.leverage.scores(A) * self.share, 1.0)[None, :]


def leverage_landmarks(sweeps: Sweeps, kernel: Kernel, sample: Array, count: int, seed: int) -> Array:
    """Return rows drawn by ridge leverage, (count, d), in one sweep; fewer only if k(x, x) is zero for the others.

    Parameters
    ----------
    kernel : k.
    sample : (s, d) rows drawn uniformly, s >= count, by which all rows are scored.
    """
    dtype = sweeps.matrix.dtype
    leverage = recursive_leverage(kernel, sample.astype(dtype, copy=False), count, seed)
    draw = LeverageDraw(count, seed, 0, leverage, len(sample) / sweeps.matrix.n_block)
    (drawn,), _ = sweeps.run(draw, "landmarks", check=True)[0]
    return np.asarray(drawn.rows[np.isfinite(drawn.times)].astype(dtype))

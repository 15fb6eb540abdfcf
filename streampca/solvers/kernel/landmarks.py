"""Landmarks, the few rows that stand for all in a Nystrom approximation: drawn evenly, by k-means, or by leverage.

Of n rows, s in a sample, m landmarks: k-means reads all rows once or a few times, the draw by leverage reads them once,
and an even draw reads no more than the chunks that hold what it drew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streampca._typing import Array
from streampca.solvers.kernel.kernels import Kernel, strips
from streampca.solvers.kernel.nystrom import kernel_matrix
from streampca.solvers.mixture.start import Arrivals, exponentials
from streampca.sources.scratch import scratch
from streampca.sweep.matrix import Matrix
from streampca.sweep.statistics import Pieces, Statistic, Summed
from streampca.sweep.sweep import Sweeps, one_blas_thread

# Ranges of chunks, each a task, that hold chosen rows; a task costs as much as a gap of many small chunks.
MAX_RANGES = 256
# Mini-batches of k-means, one read of the data in all; with fewer partitions, rounds of Lloyd's algorithm.
BATCHES = 8
ROUNDS = 3
# m landmarks are for m / (4 log m) directions: the scores sum to twice these, so that each is chosen log m times or
# more. Chosen less often, a direction is soon missed by chance, and all its rows then seem to matter.
OVERSAMPLE = 4
# The residual of k(x, x) is never below this multiple of its rounding.
ROUNDINGS = 8


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
    """Return the rows of A with these indices, in this order, (len(rows), d); reads only the chunks that hold them."""
    matrix = sweeps.matrix
    found = np.empty((len(rows), matrix.n_full), matrix.dtype)
    if len(rows) == 0:
        return found
    order = np.argsort(rows, kind="stable")
    ascending = np.asarray(rows)[order]
    part = replace(sweeps, matrix=_holding(matrix, ascending), stage="landmarks", note="", seconds=[], bytes_read=0)
    pieces, _ = part.run(Chosen(ascending), "landmarks", check=True)
    sweeps.bytes_read += part.bytes_read
    found[order] = np.concatenate(pieces)
    return found


def _holding(matrix: Matrix, rows: Array) -> Matrix:
    """Return the matrix with partitions that hold these rows, ascending: runs of whole chunks, not too long.

    The blocks of a Dask array stay whole. What is kept in memory once read is read as other sweeps read it.
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
        # Slabs that are part of a chunk stay so: there is memory for these.
        slab_length = matrix.slab_length if matrix.slab_length < length else matrix.slab_length // length * length
        origins, ends = np.zeros_like(rows), np.full_like(rows, matrix.n_block)
        pieces = rows // length
        within = pieces // max(1, int((stops - starts).max()) // length)
    steps = np.diff(pieces)
    # Where there are too many runs, those with the shortest gaps between them are read as one.
    longest = max(1, int(np.sort(steps)[-MAX_RANGES])) if len(steps) >= MAX_RANGES else 1
    cuts = np.flatnonzero((steps > longest) | (np.diff(within) > 0)) + 1
    first, last = np.append(0, cuts), np.append(cuts, len(rows)) - 1
    begin = origins[first] + pieces[first] * length
    end = np.minimum(origins[last] + (pieces[last] + 1) * length, ends[last])
    ranges = tuple((int(a), int(b)) for a, b in zip(begin, end, strict=True))
    return replace(matrix, partitions=ranges, slab_length=slab_length)


def draw_rows(n: int, count: int, seed: int | list[int]) -> Array:
    """Return `count` different rows of n, each as likely as any other, in random order."""
    return np.random.default_rng(seed).choice(n, count, replace=False)


# ---------------------------------------------------------------- k-means


@dataclass
class CentreSums(Summed):
    """Sum of the rows nearest to each centre (m, d), and how many they are (m,)."""

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
        # scipy.sparse takes a moment to load, and other models do without it.
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
    """Return the centres (m, d) that k-means finds from these, in one read of the data, or a few where they are short.

    The partitions are dealt into mini-batches, taken in random order. Each centre is the mean of all rows that came to
    it so far: c += (sum - count c) / count so far. Where partitions are too few to deal, each round takes all rows and
    forgets the counts before it (Lloyd). Centres that no row is nearest to stay.

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
    """Return rows of the sample to start k-means from, by greedy k-means++; all different ones if these are fewer.

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
    """Scores of rows by a few of them, S, that stand for a larger set:

        l(x) = (k(x, x) - k_S(x)' (K_SS + ridge P)^-1 k_S(x)) / ridge

    This is x's ridge leverage in the set, overestimated where S shows less than all of it. P holds the chance that each
    row of S had to be chosen from the set: a row with the chance p stands for 1 / p rows like it.

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
        """Return the scores by these rows, whose ridge is the mean tail: sum of the eigenvalues beyond `rank`, over it.

        The eigenvalues are those of P^-1/2 K_SS P^-1/2, about those of the whole set. Where they have no tail, a small
        share of their sum stands for it, above what rounding makes of zero.
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
        """Return l of each row, (t,); above zero, however well S shows the row, unless k(x, x) is zero."""
        m, scores = len(self.rows), np.empty(len(A))
        least = ROUNDINGS * np.finfo(A.dtype).eps
        for rows in strips(len(A), m, A.dtype):
            part = A[rows]
            K = self.kernel.with_prepared(part, self._prepared, scratch("kernel", (len(part), m), A.dtype))
            shown = np.matmul(K, self.factor, out=scratch("products", (len(part), m), A.dtype))
            whole = np.maximum(self.kernel.diagonal(part).astype(np.float64), 0.0)
            left = whole - np.einsum("ij,ij->i", shown, shown, dtype=np.float64)
            scores[rows] = np.fmax(left, least * whole)
        scores /= self.ridge
        return np.nan_to_num(scores, copy=False, nan=0.0, posinf=np.finfo(np.float64).max)


def recursive_leverage(kernel: Kernel, sample: Array, count: int, seed: int) -> Leverage:
    """Return the leverage in a sample by about `count` of its rows, chosen by leverage in halves of halves of it.

    The first set is `count` rows, all of which are in S: each chance is one. A set of twice the size is scored by the S
    of the set before, its half. The chances are those within that half, not halved again: S stands for fewer rows than
    are scored, so that scores are too high rather than too low. No leverage is above one. Then a new S is chosen from
    the larger set, with chances proportional to scores.

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
    """Return chances min(1, c l) that sum to `count`; one for each score above zero where these are fewer."""
    if np.count_nonzero(scores) <= count:
        return (scores > 0).astype(np.float64)
    share = scores / scores.max()
    falling = np.sort(share)[::-1]
    rest = np.cumsum(falling[::-1])[::-1][:count]
    # So many are sure, and the rest share what is left.
    factors = (count - np.arange(count)) / rest
    factor = factors[(factors * falling[:count] <= 1).argmax()]
    return np.asarray(np.minimum(share * factor, 1.0))


def systematic(chances: Array, begin: float) -> Array:
    """Return the places chosen, each with its chance: where the running sum of these passes an integer.

    References: Madow (1949), Ann. Math. Stat. 20.
    """
    return np.flatnonzero(np.diff(np.floor(np.cumsum(chances) + begin), prepend=0.0) > 0)


@dataclass(frozen=True)
class LeverageDraw(Statistic):
    """Rows drawn without replacement with chances proportional to their leverage, an exact draw in one pass.

    As in `mixture_start.Draw`, each row arrives after an exponential time of that rate, by a random number that belongs
    to (seed, row), and the first ones are taken.

    Parameters
    ----------
    leverage : scores in the sample.
    share : of all rows that are in the sample: a score times this is one among all rows, which is not above one.
    count : rows to draw.
    """

    leverage: Leverage
    share: float
    count: int
    seed: int

    def zero(self, n_full: int) -> Arrivals:
        """Return that no row arrived."""
        return Arrivals.none(self.count, n_full, self.leverage.rows.dtype)

    def update(self, value: Arrivals, A: Array, start: int) -> None:
        """Let the rows of A arrive."""
        rates = np.minimum(self.leverage.scores(A) * self.share, 1.0)
        value.add(A, rates, exponentials(self.seed, 0, start, len(A)), start)

    def combine(self, a: Arrivals, b: Arrivals) -> Arrivals:
        """Return the first of both."""
        return a.first(b)


def leverage_landmarks(sweeps: Sweeps, kernel: Kernel, sample: Array, count: int, seed: int) -> Array:
    """Return rows drawn by ridge leverage, (count, d), in one sweep; fewer only where k(x, x) is zero for the others.

    Parameters
    ----------
    kernel : k.
    sample : (s, d) rows drawn evenly, s not below count, by which all are scored.
    """
    leverage = recursive_leverage(kernel, sample.astype(sweeps.matrix.dtype, copy=False), count, seed)
    draw = LeverageDraw(leverage, len(sample) / sweeps.matrix.n_block, count, seed)
    found = sweeps.run(draw, "landmarks", check=True)[0].first()
    return np.asarray(found.rows[np.isfinite(found.times)])

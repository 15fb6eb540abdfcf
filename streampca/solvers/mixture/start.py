"""Where a mixture starts from: means drawn by greedy k-means++, and the leading axes of the samples nearest to each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.solvers.mixture.statistics import Flats, Mixture, NearestSums, distances
from streampca.sweep.statistics import Statistic
from streampca.sweep.sweep import Sweeps

# Samples of which k-means++ takes the best, each time.
CANDIDATES = 6
# Directions beside the k wanted in the random block of the start.
OVERSAMPLE = 4
# At the start no axis is shorter than this, beside the noise: EM cannot leave an axis of length zero.
SHORTEST = 0.1


@dataclass
class Arrivals:
    """The rows that arrived first, in no order: times (m,), infinite for none, indices (m,) and rows (m, d).

    A row arrives after a time of the exponential distribution, and the first ones are taken: an exact draw with chances
    proportional to the rates, without replacement and in one pass.
    """

    times: Array
    indices: Array
    rows: Array

    @classmethod
    def none(cls, count: int, n_full: int, dtype: Any = np.float64) -> Arrivals:
        """Return `count` places without arrivals."""
        return cls(np.full(count, np.inf), np.full(count, -1), np.zeros((count, n_full), dtype))

    def add(self, A: Array, rates: Array, waits: Array, start: int) -> None:
        """Let the rows of A arrive at waits / rates, each in place of one that arrived later."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            times = np.where(rates > 0, waits / rates, np.inf)
        early, count = np.flatnonzero(times < self.times.max()), len(self.times)
        if len(early) == 0:
            return
        both = np.concatenate([self.times, times[early]])
        stays = np.zeros(len(both), bool)
        stays[np.argsort(both, kind="stable")[:count]] = True
        free, new = np.flatnonzero(~stays[:count]), early[stays[count:]]
        self.times[free], self.indices[free], self.rows[free] = times[new], start + new, A[new]

    def first(self, other: Arrivals | None = None) -> Arrivals:
        """Return the first of these and others, in order of time, then of index."""
        parts = [self] if other is None else [self, other]
        both = Arrivals(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(self)))
        order = np.lexsort((both.indices, both.times))[: len(self.times)]
        return Arrivals(both.times[order], both.indices[order], both.rows[order])


@dataclass(frozen=True)
class Draw(Statistic):
    """Samples drawn with a chance proportional to their squared distance from the nearest flat; evenly without any.

    Each sample arrives after a time of the exponential distribution whose rate is that squared distance, and the first
    ones are taken: an exact draw in one pass. Its random number belongs to (seed, turn, row), however rows are cut.

    Parameters
    ----------
    flats : the flats so far.
    candidates : (C, d) points, of which one will be added to these: there is a draw for each. None are added if C is 0.
    count : samples to draw, L, without replacement.
    """

    flats: Flats
    candidates: Array
    count: int
    seed: int
    turn: int

    def zero(self, n_full: int) -> tuple[list[Arrivals], Array]:
        """Return that no row arrived."""
        n_draws = max(1, len(self.candidates))
        return [Arrivals.none(self.count, n_full) for _ in range(n_draws)], np.zeros(n_draws)

    def update(self, value: tuple[list[Arrivals], Array], A: Array, start: int) -> None:
        """Let the rows of A arrive."""
        rates, waits = self.rates(A), exponentials(self.seed, self.turn, start, len(A))
        for arrivals, own in zip(value[0], rates, strict=True):
            arrivals.add(A, own, waits, start)
        value[1][:] += rates.sum(axis=1)

    def rates(self, A: Array) -> Array:
        """Return the squared distance of each row from what is nearest, (C, t), with each of the candidates."""
        nearest = np.full(len(A), np.inf)
        if len(self.flats.centres):
            nearest = distances(*self.flats.measure(A)).min(axis=1)
        if len(self.candidates):
            return np.asarray(np.minimum(points(self.candidates).measure(A)[0].T, nearest))
        return np.where(np.isinf(nearest), 1.0, nearest)[None, :]

    def finish(self, value: tuple[list[Arrivals], Array], start: int) -> tuple[list[Arrivals], Array]:  # noqa: ARG002
        """Put the arrivals in order."""
        return [arrivals.first() for arrivals in value[0]], value[1]

    def combine(self, a: Any, b: Any) -> Any:
        """Return the first of both."""
        return [one.first(two) for one, two in zip(a[0], b[0], strict=True)], a[1] + b[1]


def points(centres: Array) -> Flats:
    """Return points as flats without axes."""
    return Flats(centres, np.empty((len(centres), 0, centres.shape[1]), centres.dtype))


def uniforms(seed: int, turn: int, start: int, count: int) -> Array:
    """Return the random numbers of rows start .. start + count: four to each value of a counter (Philox)."""
    generator = np.random.Philox(key=np.array([seed, turn], np.uint64))
    generator.advance(start // 4)
    return np.random.Generator(generator).random(start % 4 + count)[start % 4 :]


def exponentials(seed: int, turn: int, start: int, count: int) -> Array:
    """Return exponential times of rows start .. start + count."""
    return np.asarray(-np.log1p(-uniforms(seed, turn, start, count)))


def draw_seeds(sweeps: Sweeps, count: int, seed: int) -> Array:
    """Return `count` samples by greedy k-means++: of a few drawn, the one that leaves the least distance to the rest.

    One sweep measures what each candidate leaves, and draws, for each, who would be the next candidates: count + 1
    sweeps in all. There are fewer seeds if there are no more different samples.
    """
    dtype, d = sweeps.matrix.dtype, sweeps.matrix.n_full
    seeds = np.empty((0, d), dtype)
    (found,), _ = sweeps.run(Draw(points(seeds), seeds, 1, seed, 0), "k-means++")[0]
    candidates, best, draws = found.rows.astype(dtype), 0, [found]
    while len(candidates) and len(seeds) < count:
        last = len(seeds) + 1 == count
        if not last or len(candidates) > 1:
            draw = Draw(points(seeds), candidates, 1 if last else CANDIDATES, seed, len(seeds) + 1)
            draws, totals = sweeps.run(draw, "k-means++")[0]
            best = int(totals.argmin())
        seeds = np.vstack([seeds, candidates[best]])
        candidates = draws[best].rows[np.isfinite(draws[best].times)].astype(dtype) if not last else seeds[:0]
    return seeds.astype(np.float64)


def begin(sweeps: Sweeps, seeds: Array, n_components: int, seed: int, least: float) -> Mixture:
    """Return a mixture to start from: means and leading axes of the samples nearest to each seed; one sweep."""
    d, k = seeds.shape[1], n_components
    block = random_axes(min(d, k + OVERSAMPLE), d, seed, 0)
    flats = Flats(seeds, np.broadcast_to(block, (len(seeds), *block.shape))).rounded(sweeps.matrix.dtype)
    sums, _ = sweeps.run(NearestSums(flats), "start")
    centres, axes, values = seeds.copy(), np.empty((len(seeds), k, d)), np.empty((len(seeds), k))
    left = 0.0
    for c, count in enumerate(sums.counts):
        shift = sums.products[c, -1] / count
        about_mean = sums.products[c, :-1] - count * np.outer(block @ shift, shift)
        scatter, axes[c] = nystrom(about_mean, block, k, float(np.finfo(sweeps.matrix.dtype).eps))
        centres[c] += shift
        values[c] = scatter / count
        left += sums.squares[c] - count * (shift @ shift) - scatter.sum()
    noise = max(left / (sums.counts.sum() * (d - k)), least)
    lengths = np.sqrt(np.maximum(values - noise, SHORTEST**2 * noise))
    return Mixture(Flats(centres, axes), sums.counts / sums.counts.sum(), lengths, np.full(len(seeds), noise))


def random_axes(count: int, d: int, seed: int, turn: int) -> Array:
    """Return `count` random directions, orthonormal rows."""
    block = np.random.default_rng([seed, turn]).standard_normal((d, count))
    return np.ascontiguousarray(np.linalg.qr(block)[0].T)


def nystrom(products: Array, block: Array, k: int, unit: float) -> tuple[Array, Array]:
    """Return the k leading eigenvalues and eigenvectors (as rows) of S, approximately, from Q S for a block Q (b, d).

    S is about (Q S)' (Q S Q')^-1 (Q S); eigenvalues of the middle matrix below its rounding count as none.
    """
    core = products @ block.T
    values, R = np.linalg.eigh((core + core.T) / 2)
    solid = values > 10 * unit * len(values) * max(values[-1], 0.0)
    inverse_root = np.where(solid, 1 / np.sqrt(np.where(solid, values, 1.0)), 0.0)
    _, s, axes = np.linalg.svd((R * inverse_root).T @ products, full_matrices=False)
    return s[:k] ** 2, axes[:k]

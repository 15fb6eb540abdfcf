"""Where a mixture starts from: means drawn by greedy k-means++, and the leading axes of the samples nearest to each."""

from __future__ import annotations

from dataclasses import dataclass

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
    """The first to arrive, for each of some candidates: times (C, L), values (C, L, d), and the sum of rates (C,)."""

    times: Array
    rows: Array
    totals: Array


@dataclass(frozen=True)
class Draw(Statistic):
    """Samples drawn with a chance proportional to their squared distance from the nearest flat; evenly without any.

    Each sample arrives after a time of the exponential distribution whose rate is that squared distance, and the first
    ones are taken: an exact draw in one pass. Its random number belongs to (seed, turn, row), however rows are cut.

    Parameters
    ----------
    flats : what is there.
    candidates : (C, d) points, of which one will be added to these: there is a draw for each. None are added if C is 0.
    count : samples to draw, L, without replacement.
    """

    flats: Flats
    candidates: Array
    count: int
    seed: int
    turn: int

    def zero(self, n_full: int) -> Arrivals:
        """Return that nobody came."""
        n_draws = max(1, len(self.candidates))
        rows = np.zeros((n_draws, self.count, n_full))
        return Arrivals(np.full((n_draws, self.count), np.inf), rows, np.zeros(n_draws))

    def update(self, value: Arrivals, A: Array, start: int) -> None:
        """Let the rows of A arrive."""
        rates = self.rates(A)
        value.totals += rates.sum(axis=1)
        waits = -np.log1p(-uniforms(self.seed, self.turn, start, len(A)))
        with np.errstate(divide="ignore", over="ignore"):
            times = np.where(rates > 0, waits / rates, np.inf)
        for c, own in enumerate(times):
            first = np.argsort(own, kind="stable")[: self.count]
            if own[first[0]] < value.times[c, -1]:
                self._merge(value, c, own[first], A[first])

    def rates(self, A: Array) -> Array:
        """Return the squared distance of each row from what is nearest, (C, t), with each of the candidates."""
        nearest = np.full(len(A), np.inf)
        if len(self.flats.centres):
            nearest = distances(*self.flats.measure(A)).min(axis=1)
        if len(self.candidates):
            return np.asarray(np.minimum(points(self.candidates).measure(A)[0].T, nearest))
        return np.where(np.isinf(nearest), 1.0, nearest)[None, :]

    def _merge(self, value: Arrivals, c: int, times: Array, rows: Array) -> None:
        """Keep the first of those who came before and these."""
        both = np.concatenate([value.times[c], times])
        first = np.argsort(both, kind="stable")[: self.count]
        value.times[c], value.rows[c] = both[first], np.concatenate([value.rows[c], rows])[first]

    def combine(self, a: Arrivals, b: Arrivals) -> Arrivals:
        """Return who came first of both."""
        merged = Arrivals(a.times.copy(), a.rows.copy(), a.totals + b.totals)
        for c, (times, rows) in enumerate(zip(b.times, b.rows, strict=True)):
            self._merge(merged, c, times, rows)
        return merged


def points(centres: Array) -> Flats:
    """Return points as flats without axes."""
    return Flats(centres, np.empty((len(centres), 0, centres.shape[1]), centres.dtype))


def uniforms(seed: int, turn: int, start: int, count: int) -> Array:
    """Return the random numbers of rows start .. start + count: four to each value of a counter (Philox)."""
    generator = np.random.Philox(key=np.array([seed, turn], np.uint64))
    generator.advance(start // 4)
    return np.random.Generator(generator).random(start % 4 + count)[start % 4 :]


def draw_seeds(sweeps: Sweeps, count: int, seed: int) -> Array:
    """Return so many samples by greedy k-means++: of a few drawn, the one that leaves the least distance to the rest.

    One sweep measures what each candidate leaves, and draws, for each, who would be the next candidates: count + 1
    sweeps in all. There are fewer seeds if there are no more different samples.
    """
    dtype, d = sweeps.matrix.dtype, sweeps.matrix.n_full
    seeds = np.empty((0, d), dtype)
    found, _ = sweeps.run(Draw(points(seeds), seeds, 1, seed, 0), "k-means++")
    candidates, best = found.rows[0].astype(dtype), 0
    while len(candidates) and len(seeds) < count:
        last = len(seeds) + 1 == count
        if not last or len(candidates) > 1:
            draw = Draw(points(seeds), candidates, 1 if last else CANDIDATES, seed, len(seeds) + 1)
            found, _ = sweeps.run(draw, "k-means++")
            best = int(found.totals.argmin())
        seeds = np.vstack([seeds, candidates[best]])
        candidates = found.rows[best][np.isfinite(found.times[best])].astype(dtype) if not last else seeds[:0]
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
    """Return so many random directions, orthonormal rows."""
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

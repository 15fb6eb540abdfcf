"""The start of a mixture: means drawn by greedy k-means++, and the leading axes of the samples nearest to each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.solvers.draw import Draw
from streampca.solvers.mixture.statistics import Flats, Mixture, NearestSums, distances
from streampca.sweep.sweep import Sweeps

CANDIDATES = 6  # samples of which k-means++ takes the best, each time
OVERSAMPLE = 4  # directions in addition to k in the random block of the start
SHORTEST = 0.1  # least length of an axis at the start, relative to the noise: EM cannot leave an axis of length zero


@dataclass(frozen=True)
class SeedDraw(Draw):
    """Samples drawn in proportion to their squared distance from the nearest flat; uniformly without flats.

    Parameters
    ----------
    flats : the flats so far.
    candidates : (C, d) points, one of which will be added to these: there is a draw for each. None are added if C is 0.
    """

    flats: Flats
    candidates: Array

    @property
    def n_draws(self) -> int:  # type: ignore[override]
        """One for each candidate."""
        return max(1, len(self.candidates))

    def rates(self, A: Array) -> Array:
        """Return the squared distance of each row from the nearest flat or candidate, (C, t), for each candidate."""
        nearest = np.full(len(A), np.inf)
        if len(self.flats.centres):
            nearest = distances(*self.flats.measure(A)).min(axis=1)
        if len(self.candidates):
            return np.asarray(np.minimum(points(self.candidates).measure(A)[0].T, nearest))
        return np.where(np.isinf(nearest), 1.0, nearest)[None, :]


def points(centres: Array) -> Flats:
    """Return points as flats without axes."""
    return Flats(centres, np.empty((len(centres), 0, centres.shape[1]), centres.dtype))


def draw_seeds(sweeps: Sweeps, count: int, seed: int) -> Array:
    """Return `count` samples by greedy k-means++: of a few candidates, the one with the least distance to all samples.

    One sweep computes the distance that remains for each candidate, and draws the next candidates for each: count + 1
    sweeps in all. There are fewer seeds if there are fewer distinct samples.
    """
    dtype, d = sweeps.matrix.dtype, sweeps.matrix.n_full
    seeds = np.empty((0, d), dtype)
    (first,), _ = sweeps.run(SeedDraw(1, seed, 0, points(seeds), seeds), "k-means++")[0]
    candidates, best, draws = first.rows.astype(dtype), 0, [first]
    while len(candidates) and len(seeds) < count:
        last = len(seeds) + 1 == count
        if not last or len(candidates) > 1:
            draw = SeedDraw(1 if last else CANDIDATES, seed, len(seeds) + 1, points(seeds), candidates)
            draws, totals = sweeps.run(draw, "k-means++")[0]
            best = int(totals.argmin())
        seeds = np.vstack([seeds, candidates[best]])
        candidates = draws[best].rows[np.isfinite(draws[best].times)].astype(dtype) if not last else seeds[:0]
    return seeds.astype(np.float64)


def begin(sweeps: Sweeps, seeds: Array, n_components: int, seed: int, least: float) -> Mixture:
    """Return the first mixture: means and leading axes of the samples nearest to each seed; one sweep."""
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

    S is about (Q S)' (Q S Q')^-1 (Q S); eigenvalues of the middle matrix below its rounding count as zero.
    """
    core = products @ block.T
    values, R = np.linalg.eigh((core + core.T) / 2)
    solid = values > 10 * unit * len(values) * max(values[-1], 0.0)
    inverse_root = np.where(solid, 1 / np.sqrt(np.where(solid, values, 1.0)), 0.0)
    _, s, axes = np.linalg.svd((R * inverse_root).T @ products, full_matrices=False)
    return s[:k] ** 2, axes[:k]

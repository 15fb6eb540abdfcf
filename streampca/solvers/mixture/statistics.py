"""A mixture of probabilistic PCA models: its parameters, densities, and the sums of one sweep.

See `streampca.solvers.mixture.loop` for the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sources.scratch import scratch, scratch_like
from streampca.sweep.statistics import Statistic, Summed, add_product

# Responsibilities below this do not change float64 sums, and their squares are too small for float32.
LEAST_SHARE = 1e-18


@dataclass(frozen=True)
class Flats:
    """Affine subspaces: a centre (K, d) and orthonormal axes (K, j, d) of each; points if j is 0."""

    centres: Array
    axes: Array

    def rounded(self, dtype: Any) -> Flats:
        """Return the flats in the type of the tiles."""
        return Flats(self.centres.astype(dtype, copy=False), self.axes.astype(dtype, copy=False))

    def measure(self, A: Array) -> tuple[Array, Array]:
        """Return |y|^2 (t, K) and scores (K, t, j) of the rows of A, where y is the deviation from each centre."""
        n_flats, width, _ = self.axes.shape
        squares, scores = np.empty((len(A), n_flats)), np.empty((n_flats, len(A), width))
        for c in range(n_flats):
            Y = self.deviations(A, c)
            squares[:, c] = np.einsum("ij,ij->i", Y, Y)
            scores[c] = Y @ self.axes[c].T
        return squares, scores

    def deviations(self, A: Array, c: int, rows: Array | None = None) -> Array:
        """Return (some) rows of A minus centre c, in a buffer that the next call overwrites."""
        if rows is not None and len(rows) < len(A):
            Y = scratch("deviations", (len(rows), A.shape[1]), A.dtype)
            np.take(A, rows, axis=0, out=Y, mode="clip")
            Y -= self.centres[c]
            return Y
        Y = scratch_like("deviations", A, A.dtype)
        np.subtract(A, self.centres[c], out=Y)
        return Y


def distances(squares: Array, scores: Array) -> Array:
    """Return the squared distance of each row from each flat, (t, K)."""
    return np.asarray(np.maximum(squares - (scores**2).sum(axis=2).T, 0.0))


@dataclass(frozen=True)
class Mixture:
    """The parameters, in units of the scaled features, relative to the centre of the tiles.

    Attributes
    ----------
    flats : mu_c and the principal axes V_c.
    weights : (K,) pi_c.
    lengths : (K, k) of the columns of W_c, longest first.
    noise : (K,) s2_c.
    """

    flats: Flats
    weights: Array
    lengths: Array
    noise: Array

    @property
    def variances(self) -> Array:
        """Variance along each axis, l^2 + s2, (K, k)."""
        return np.asarray(self.lengths**2 + self.noise[:, None])

    def log_joint(self, squares: Array, scores: Array) -> Array:
        """Return log pi_c + log N(x; mu_c, C_c) of each row, (t, K), from the result of `Flats.measure`."""
        d, k = self.flats.centres.shape[1], self.lengths.shape[1]
        variances = self.variances
        logdet = np.log(variances).sum(axis=1) + (d - k) * np.log(self.noise)
        inside = (scores**2 / variances[:, None, :]).sum(axis=2).T
        outside = distances(squares, scores) / self.noise
        return np.asarray(np.log(self.weights) - 0.5 * (d * np.log(2 * np.pi) + logdet + inside + outside))

    def log_joint_of(self, A: Array) -> Array:
        """Return log pi_c + log N(x; mu_c, C_c) of the rows of A, (t, K)."""
        return self.log_joint(*self.flats.measure(A))

    def take(self, chosen: Array) -> Mixture:
        """Return some components, in this order, with weights that sum to one."""
        flats = Flats(self.flats.centres[chosen], self.flats.axes[chosen])
        weights = self.weights[chosen] / self.weights[chosen].sum()
        return Mixture(flats, weights, self.lengths[chosen], self.noise[chosen])

    def joined(self, centre: Array, axes: Array, weight: float) -> Mixture:
        """Return the mixture with one more component, which has the mean noise, also as the variance of its axes."""
        noise = float(self.weights @ self.noise)
        return Mixture(
            Flats(np.vstack([self.flats.centres, centre]), np.concatenate([self.flats.axes, axes[None]])),
            np.append(self.weights * (1 - weight), weight),
            np.vstack([self.lengths, np.full(len(axes), np.sqrt(noise))]),
            np.append(self.noise, noise),
        )


def log_sum(log_joint: Array) -> Array:
    """Return log sum exp of each row, without overflow."""
    top = log_joint.max(axis=1)
    return np.asarray(top + np.log(np.exp(log_joint - top[:, None]).sum(axis=1)))


@dataclass
class Sums(Summed):
    """Sums of one sweep: sum r (v, 1) y' (K, j + 1, d), sum r and sum r |y|^2 (K,), and the log-likelihood."""

    products: Array
    counts: Array
    squares: Array
    likelihood: float = 0.0


@dataclass(frozen=True)
class NearestSums(Statistic):
    """The sums with each sample assigned to the nearest centre."""

    flats: Flats

    def zero(self, n_full: int) -> Sums:
        """Return empty sums."""
        n_flats, width, _ = self.flats.axes.shape
        return Sums(np.zeros((n_flats, width + 1, n_full)), np.zeros(n_flats), np.zeros(n_flats))

    def update(self, value: Sums, A: Array, start: int) -> None:  # noqa: ARG002
        """Assign the rows of A to the flats, and add their contributions."""
        squares, scores = self.flats.measure(A)
        shares, likelihood = self.shares(squares, scores)
        value.counts += shares.sum(axis=0)
        value.squares += (shares * squares).sum(axis=0)
        value.likelihood += likelihood
        for c, share in enumerate(shares.T):
            rows = np.flatnonzero(share)
            if len(rows) == 0:
                continue
            weighted = np.column_stack([scores[c, rows], np.ones(len(rows))]) * share[rows, None]
            add_product(value.products[c].T, weighted.astype(A.dtype), self.flats.deviations(A, c, rows))

    def shares(self, squares: Array, scores: Array) -> tuple[Array, float]:  # noqa: ARG002
        """Return the share of each row in each flat, (t, K), and the log-likelihood of the rows."""
        return np.eye(squares.shape[1])[squares.argmin(axis=1)], 0.0


@dataclass(frozen=True)
class ExpectedSums(NearestSums):
    """The E-step of samples, and the sums for the M-step."""

    mixture: Mixture

    def shares(self, squares: Array, scores: Array) -> tuple[Array, float]:
        """Return responsibilities."""
        log_joint = self.mixture.log_joint(squares, scores)
        total = log_sum(log_joint)
        shares = np.exp(log_joint - total[:, None])
        shares[shares < LEAST_SHARE] = 0.0
        return shares, float(total.sum())

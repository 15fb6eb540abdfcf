"""Latent factors: the parameters, the posterior of the samples, and the two steps of EM as small least squares.

See `streampca.solvers.em.loop` for the model and how the steps become sweeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.sweep.missing import loops

PIECE_ROWS = 4096  # rows whose products are computed at a time
LARGEST_STEP = 10.0  # factor by which an extrapolation may change the noise


@dataclass(frozen=True)
class Factors:
    """The parameters: x = W z + shift + noise, in units of the scaled features, about their centre.

    Attributes
    ----------
    W : (d, k).
    shift : (d,) mu minus the centre.
    noise : s2, or psi (d,).
    """

    W: Array
    shift: Array
    noise: float | Array

    @property
    def n_components(self) -> int:
        """Latent dimensions, k."""
        return int(self.W.shape[1])

    @property
    def both(self) -> Array:
        """W and the shift side by side, (d, k + 1)."""
        return np.column_stack([self.W, self.shift])

    @property
    def weights(self) -> Array:
        """Weight of a squared deviation of each feature: 1 / psi, or 1 for a common noise, which divides later."""
        return np.asarray(1.0 / self.noise) if isinstance(self.noise, np.ndarray) else np.ones(len(self.W))

    @property
    def common(self) -> float:
        """Noise that is not in the weights: s2, or 1."""
        return 1.0 if isinstance(self.noise, np.ndarray) else self.noise

    @property
    def logs(self) -> tuple[Array, float]:
        """Term of -2 log p for the noise of an observed value of each feature, as a number and a common factor."""
        if isinstance(self.noise, np.ndarray):
            return np.log(2 * np.pi * self.noise), 1.0
        return np.ones(len(self.W)), float(np.log(2 * np.pi * self.noise))

    def part(self, features: slice | Array) -> Factors:
        """Return the parameters of some features."""
        noise = self.noise[features] if isinstance(self.noise, np.ndarray) else self.noise
        return Factors(self.W[features], self.shift[features], noise)

    def rotated(self) -> tuple[Factors, Array]:
        """Return the same model along principal axes, and the rotation R: z' = z R.

        W R has orthogonal columns, longest first (in the metric 1 / psi), the largest entry of each positive.
        """
        values, R = np.linalg.eigh((self.W.T * self.weights) @ self.W)
        R = R[:, np.argsort(values)[::-1]]
        W = self.W @ R
        signs = np.sign(W[np.abs(W).argmax(axis=0), range(W.shape[1])])
        signs[signs == 0] = 1.0
        return replace(self, W=W * signs), R * signs

    def vector(self) -> Array:
        """Return all parameters as one vector, with the logarithm of the noise, to extrapolate."""
        return np.concatenate([self.W.ravel(), self.shift, np.atleast_1d(np.log(self.noise))])

    def moved(self, vector: Array) -> Factors:
        """Return the parameters of such a vector; the noise changes by a factor of LARGEST_STEP at most."""
        d, k = self.W.shape
        before = np.atleast_1d(np.log(self.noise))
        noise = np.exp(np.clip(vector[d * (k + 1) :], before - np.log(LARGEST_STEP), before + np.log(LARGEST_STEP)))
        W, shift = vector[: d * k].reshape(d, k), vector[d * k : d * (k + 1)]
        return Factors(W, shift, noise if isinstance(self.noise, np.ndarray) else float(noise[0]))

    def directions(self) -> Array:
        """Return what spans the subspace."""
        return self.W


@dataclass(frozen=True)
class Posterior:
    """Posterior of z of each sample: mean (n, k), and covariance (n, k (k + 1) / 2), packed, or one for all samples."""

    mean: Array
    covariance: Array

    def vector(self) -> Array:
        """Return the means as one vector, to extrapolate; with the logarithm of a covariance that all samples share."""
        return np.append(self.mean, self._spectral(self.covariance, np.log) if len(self.covariance) == 1 else [])

    def moved(self, vector: Array) -> Posterior:
        """Return the posterior of such a vector; covariances of single samples do not change."""
        mean, rest = np.split(vector, [self.mean.size])
        # The posterior variance never exceeds that of the prior, one.
        covariance = self._spectral(rest[None], lambda x: np.exp(np.minimum(x, 0.0))) if rest.size else self.covariance
        return Posterior(mean.reshape(self.mean.shape), covariance)

    def _spectral(self, packed: Array, function: Callable[[Array], Array]) -> Array:
        """Return a function of a packed covariance, applied to its eigenvalues."""
        packing = Packing(self.mean.shape[1])
        values, R = np.linalg.eigh(packing.unpacked(packed)[0])
        return packing.packed(((R * function(values)) @ R.T)[None])

    def directions(self) -> Array:
        """Return what spans the subspace."""
        return self.mean

    def deviations(self) -> Array:
        """Return the standard deviation of each coordinate, (n, k)."""
        packing = Packing(self.mean.shape[1])
        variance = self.covariance[:, packing.rows == packing.columns]
        return np.broadcast_to(np.sqrt(variance), self.mean.shape)

    def known(self) -> Known:
        """Return means and deviations."""
        return Known(self.mean, self.deviations())

    def rotated(self, R: Array) -> Posterior:
        """Return the posterior of z R."""
        packing = Packing(len(R))
        turned = R.T @ packing.unpacked(self.covariance) @ R
        return Posterior(self.mean @ R, packing.packed(turned))


@dataclass(frozen=True)
class Known:
    """Mean and standard deviation of each coordinate of z of each sample, (n, k)."""

    mean: Array
    deviation: Array


class Packing:
    """Symmetric k x k matrices as rows of their k (k + 1) / 2 entries on and below the diagonal."""

    def __init__(self, k: int):
        self.rows, self.columns = np.tril_indices(k)
        self.width = len(self.rows)
        self._index = np.zeros((k, k), np.intp)
        self._index[self.rows, self.columns] = self._index[self.columns, self.rows] = np.arange(self.width)

    def packed(self, matrices: Array) -> Array:
        """Return (t, k, k) as (t, width)."""
        return np.asarray(matrices[:, self.rows, self.columns])

    def outer(self, rows: Array, weights: Array | float = 1.0) -> Array:
        """Return w y y' of each row y, packed."""
        return np.asarray((rows * np.reshape(weights, (-1, 1)))[:, self.rows] * rows[:, self.columns])

    def unpacked(self, packed: Array) -> Array:
        """Return (t, width) as (t, k, k)."""
        return np.asarray(packed[:, self._index])


@dataclass(frozen=True)
class Side:
    """Contributions of one axis to the sums over it: of features (w_j, shift_j) / psi_j, of samples (<z>, 1).

    Attributes
    ----------
    rows : (N, k + 1), the factor of A, in the type of the tiles; columns of zeros make their number a multiple of 8.
    packed : (N, width + 1) products of each row, and the terms that a missing entry subtracts; None for complete data.
    total : (width + 1,) sum of these over all rows, after rounding.
    """

    rows: Array
    packed: Array | None
    total: Array

    @classmethod
    def of_features(cls, factors: Factors, incomplete: bool, dtype: Any) -> Side:
        """Return the contributions of features, for the E-step."""
        rows = padded(factors.both * factors.weights[:, None], dtype)
        if incomplete:
            return cls(rows, *_filled(lambda part: contributions_of(factors.part(part))[1], len(rows), dtype))
        products = (factors.both.T * factors.weights) @ factors.both
        return cls(rows, None, np.append(Packing(len(products)).packed(products[None])[0], factors.logs[0].sum()))

    @classmethod
    def of_samples(cls, posterior: Posterior, incomplete: bool, dtype: Any) -> Side:
        """Return the contributions of samples, for the M-step."""
        rows = np.column_stack([posterior.mean, np.ones(len(posterior.mean))])
        shared = len(posterior.covariance) == 1

        def products(part: slice) -> Array:
            covariance = posterior.covariance if shared else posterior.covariance[part]
            return np.column_stack([second_moments(rows[part], covariance), rows[part, -1:]])

        filled, total = _filled(products, len(rows), dtype, keep=incomplete)
        return cls(padded(rows, dtype), filled, total)

    @classmethod
    def unknown(cls, k: int, incomplete: bool, dtype: Any) -> Side:
        """Return an empty side, for a step that does not use the other side."""
        width = Packing(k + 1).width + 1
        packed = np.zeros((0, width), dtype) if incomplete else None
        return cls(padded(np.zeros((0, k + 1)), dtype), packed, np.zeros(width))


def _filled(part_of: Callable[[slice], Array], count: int, dtype: Any, keep: bool = True) -> tuple[Any, Array]:
    """Return `count` rows in the type of the tiles, if kept, and their sum after rounding; computed piece by piece."""
    width = part_of(slice(0, 1)).shape[1]
    filled = np.empty((count, width), dtype) if keep else None
    total = np.zeros(width)
    for start in range(0, count, PIECE_ROWS):
        part = slice(start, min(start + PIECE_ROWS, count))
        rows = part_of(part).astype(dtype, order="C")
        total += rows.sum(axis=0, dtype=np.float64)
        if filled is not None:
            filled[part] = rows
    return filled, total


def padded(rows: Array, dtype: Any) -> Array:
    """Return rows with columns of zeros up to a multiple of 8, for which the BLAS is faster."""
    padded = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), dtype)
    padded[:, : rows.shape[1]] = rows
    return padded


def dimensions(total: Array) -> int:
    """Return k from the width of packed sums, (k + 1) (k + 2) / 2 + 1."""
    return int(np.sqrt(2 * len(total))) - 1


def second_moments(rows: Array, covariance: Array) -> Array:
    """Return <z~ z~'> of each sample, packed, from (<z>, 1) and the covariance of z."""
    k = rows.shape[1] - 1
    moments = Packing(k + 1).outer(rows)
    # Packed row by row, the entries of z with itself come first.
    moments[:, : k * (k + 1) // 2] += covariance
    return moments


def e_step(products: Array, off: Array | None, side: Side, factors: Factors) -> tuple[Posterior, Array, Array]:
    """Return the posterior of z of each sample, and twice the log-likelihood without the squared deviations.

    Parameters
    ----------
    products : (t, k + 1) x_n' side.rows; missing entries are zero in x.
    off : (t, width + 1) sum of side.packed over the missing entries of each sample; None for complete data.

    Returns the posterior, the terms, and sum_j shift_j^2 / psi_j over the observed features.
    """
    k, width = factors.n_components, Packing(factors.n_components).width
    left = side.total[None, :] if off is None else side.total - off
    shifted = np.broadcast_to(left[:, width + k], len(products))
    if off is None:
        M = Packing(k + 1).unpacked(left[:, :-1])[0]
        b = products[:, :k] - M[:k, k]
        inverse = np.linalg.inv(M[:k, :k] + factors.common * np.eye(k))
        mean, covariance = b @ inverse, Packing(k).packed(factors.common * inverse[None])
        logdet = -np.linalg.slogdet(inverse)[1] - k * np.log(factors.common)
        terms = (b * mean).sum(axis=1) / factors.common - logdet
    else:
        mean, covariance, terms = np.empty((len(left), k)), np.empty((len(left), width)), np.empty(len(left))
        loops().posteriors(left, products, factors.common, mean, covariance, terms)
    return Posterior(mean, covariance), terms - left[:, -1] * factors.logs[1], shifted


def m_step(products: Array, off: Array | None, total: Array) -> tuple[Array, Array]:
    """Return (w_j, shift_j) of each feature, (t, k + 1), and the number of its observed values.

    Parameters
    ----------
    products : (t, k + 1) sum over samples of x_nj (<z_n>, 1).
    off : (t, width + 1) sum of <z~ z~'> and 1 over the samples whose value is missing.
    total : (width + 1,) the same over all samples.
    """
    left = total[None, :] if off is None else total - off
    count = np.broadcast_to(np.rint(left[:, -1]), len(products))
    if off is None:
        S = Packing(products.shape[1]).unpacked(left[:, :-1])[0]
        return np.linalg.solve(S, products.T).T, count
    both = np.empty_like(products, order="C")
    loops().regressions(left, products, both)
    return both, count


def contributions_of(part: Factors) -> tuple[Array, Array]:
    """Return what features add to the products, and to the sums over missing entries, of the E-step."""
    weights = part.weights
    packed = np.column_stack([Packing(part.n_components + 1).outer(part.both, weights), part.logs[0]])
    return part.both * weights[:, None], packed

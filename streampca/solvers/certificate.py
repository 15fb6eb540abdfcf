"""Certificates: bounds on ||S u - theta u|| / theta that hold for any data, any BLAS and any processor.

Vectors come from products of float32 tiles, whose rounding error is measured in float64, not modelled. Rows of A in
S = A'A / (n - 1) are along the block axis.

    exact:  z = S u from float64 tiles;                   |error| <= ||z - theta u|| + floor
    probe:  z = S u from float32 tiles, H = S G for p Gaussian vectors that the solver never sees, in float64.
            e = z - S u is unknown, but g_j'e = g_j'z - h_j'u is known, since S is symmetric, and is N(0, ||e||^2):
            |error| <= ||z - theta u|| + 30 max_j |g_j'e| + floor,  P(||e|| > 30 max_j |g_j'e|) < (0.027)^8 = 3e-13
            for each component in each sweep: below 1e-11 in twenty sweeps, also with the two probes below

    floor = u (N + chain + 16) trace(S) + far means,   u = 2^-53, for any order of summation,
            from |fl(A'Au) - A'Au| <= gamma |A|'|A||u| and || |A| ||^2 <= ||A||_F^2

A matrix that is cut along features gives vectors u of the samples; components are y = A u. If y comes from float32
tiles as well, two probes measure both products: Y = A G and K = A'R for Gaussian G and R, in float64. With
a = A'y - z and b = A u - y,  g'a = Y'y - g'z  and  r'b = K'u - r'y,

    S u - theta u = (z - theta u) + a + A'b,      A A'y - theta y = A (z - theta u) + A a + theta b

so that sqrt(theta_1 / theta) (||a|| + sqrt(theta) ||b||) bounds the rounding of both. The residual r = z - theta u is
orthogonal to the computed leading vectors, so nearly to the true ones. The error of vector j is at most rho_j / gap:

    ||A r||^2 <= theta_i (1 + sum_{j < i} (theta_j / theta_i) min(1, rho_j / (theta_j - theta_i))^2) ||r||^2
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.solvers.noise import NOISE_TOL
from streampca.sweep.matrix import Matrix
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Probed, ProbedRows, ProductAndRows, Statistic

PROBES = 8
MARGIN = 30.0
# The probes come from a seed of their own, which no solver uses. It is fixed, so that accumulators merge.
SEED = 0x70726F6265
# Rounding unit of float64.
UNIT = 2.0**-53
# Columns whose residuals are formed at a time.
COLUMNS = 64


def draw_probes(n_full: int) -> Array:
    """Return the Gaussian vectors G (N x p), the same for the same N."""
    return np.random.default_rng([SEED, n_full]).standard_normal((n_full, PROBES))


def with_probes(statistic: Statistic, n_full: int) -> Statistic:
    """Return a statistic of float32 tiles with probes in float64."""
    G = draw_probes(n_full)
    return ProbedRows(statistic, G, SEED) if isinstance(statistic, ProductAndRows) else Probed(statistic, G)


@dataclass(frozen=True)
class Probe:
    """H = S G in float64 (N x p)."""

    G: Array
    H: Array

    def rounding(self, values: Array, vectors: Array, residuals: Array) -> Array:
        """Return max_j |g_j'(z - S u)| of each pair, for z = theta u + residual."""
        return np.asarray(np.abs((self.G.T @ vectors) * values + self.G.T @ residuals - self.H.T @ vectors).max(axis=0))


@dataclass(frozen=True)
class RowProbe:
    """K = A'R (N x p), and the rows of Y = A G and of R as lists of pieces, in float64."""

    G: Array
    K: Array
    Y: list[Array]
    R: list[Array]
    n_samples: int

    def rounding(self, values: Array, vectors: Array, residuals: Array, rows: Array) -> Array:
        """Return max_j |g_j'a| + sqrt(theta) max_j |r_j'b| of each pair, for rows = fl(A U)."""
        of_Y, of_R, start = np.zeros((PROBES, len(values))), np.zeros((PROBES, len(values))), 0
        for Y, R in zip(self.Y, self.R, strict=True):
            y = rows[start : start + len(Y)].astype(np.float64)
            of_Y += Y.T @ y
            of_R += R.T.astype(np.float64) @ y
            start += len(Y)
        a = np.abs(of_Y / (self.n_samples - 1) - self.G.T @ (vectors * values + residuals)).max(axis=0)
        b = np.abs(self.K.T @ vectors - of_R).max(axis=0) / np.sqrt(self.n_samples - 1)
        return np.asarray(a + np.sqrt(values) * b)


def probe_of(value: Any, statistic: Statistic, n_samples: int) -> tuple[Any, Probe | RowProbe]:
    """Split the value of a sweep with probes into the value of the statistic and the probe."""
    if isinstance(statistic, ProbedRows):
        inner, K, rows, drawn = value
        return inner, RowProbe(statistic.G, K, rows, drawn, n_samples)
    assert isinstance(statistic, Probed)
    return value[0], Probe(statistic.G, value[1] / (n_samples - 1))


@dataclass(frozen=True)
class Errors:
    """Absolute errors of leading pairs: ||S u - theta u|| <= residuals + rounding.

    Attributes
    ----------
    values, residuals, rounding : (k,). Without a certificate, `rounding` is zero, and the bound is an estimate.
    method : "exact", "probe", or "none".
    noise : mask of the pairs that need not converge, because they cannot be distinguished from noise; None if all must.
    """

    values: Array
    residuals: Array
    rounding: Array
    method: str
    noise: Array | None = None

    @property
    def certificate(self) -> Array:
        """(residual + rounding) / theta, infinite where the eigenvalue is zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            bound = (self.residuals + self.rounding) / self.values
        return np.where(self.values > 0, bound, np.inf)

    def tolerances(self, tol: float) -> Array:
        """Return the largest certificate that each pair may have."""
        noise = np.zeros(len(self.values), bool) if self.noise is None else self.noise
        return np.where(noise, max(tol, NOISE_TOL), tol)

    def missed(self, tol: float) -> Array:
        """Return a mask of the pairs whose certificate is above their tolerance."""
        return np.asarray(self.certificate > self.tolerances(tol))

    def moved(self, vectors: Array, change: Array) -> Errors:
        """Return the errors of vectors after a change c (N x k), such as rounding.

        (S - theta) c is exact along the leading vectors; orthogonal to them it is no longer than theta c.
        """
        along = vectors.T @ change
        apart = np.abs(self.values[:, None] - self.values[None, :])
        inside = np.square(apart * along).sum(axis=0)
        return replace(
            self, rounding=self.rounding + np.sqrt(inside + np.square(self.values * np.linalg.norm(change, axis=0)))
        )

    def mixed(self, shares: Array) -> Errors:
        """Return the errors of combinations of the vectors, u_i + sum_j shares[i, j] u_j."""
        apart = np.abs(self.values[:, None] - self.values[None, :])
        return replace(self, rounding=self.rounding + (np.abs(shares) * apart).sum(axis=1))

    def leading(self, count: int) -> Errors:
        """Return the errors of the first `count` pairs."""
        noise = None if self.noise is None else self.noise[:count]
        return Errors(self.values[:count], self.residuals[:count], self.rounding[:count], self.method, noise)


def certify(
    values: Array, vectors: Array, residuals: Array, floor: float | Array, probe: Probe | RowProbe | None = None,
    rows: Array | None = None, gram: bool = False, largest: float | None = None,
) -> Errors:  # fmt: skip
    """Bound the errors of pairs (theta, u), from the residuals z - theta u (N x k), where z is the computed S u.

    Without a probe z must come from float64 tiles.

    Parameters
    ----------
    floor : absolute rounding in float64, of all pairs or of each.
    rows : the computed A U, for a `RowProbe`.
    gram : whether u are vectors of samples, and components are A u.
    largest : largest eigenvalue, if it is not the first of these.
    """
    amplified = np.ones(len(values))
    if gram:
        amplified = np.sqrt((largest or values[0]) / np.where(values > 0, values, np.inf))
    rounding = floor * amplified
    if isinstance(probe, RowProbe):
        assert rows is not None
        rounding = rounding + MARGIN * amplified * probe.rounding(values, vectors, residuals, rows)
    elif probe is not None:
        rounding = rounding + MARGIN * amplified * probe.rounding(values, vectors, residuals)
    method = "exact" if probe is None else "probe"
    lengths = np.linalg.norm(residuals, axis=0)
    return Errors(values, lengths * _stretch(values, lengths + rounding) if gram else lengths, rounding, method)


def _stretch(values: Array, errors: Array) -> Array:
    """Bound ||A r|| / (sqrt(theta) ||r||) for the residual r of each pair."""
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.minimum(1.0, errors[:, None] / np.maximum(values[:, None] - values[None, :], 0.0))
        ratio = values[:, None] / np.where(values > 0, values, np.inf)[None, :]
    return np.asarray(np.sqrt(1 + np.triu(ratio * np.square(np.nan_to_num(off, nan=1.0)), 1).sum(axis=0)))


def certify_matrix(
    S: Array, values: Array, vectors: Array, floor: float, probe: Probe | None = None, gram: bool = False
) -> Errors:
    """Bound the errors of pairs of a matrix S in memory, by its own product with the vectors."""
    parts = []
    for start in range(0, max(1, len(values)), COLUMNS):
        some = slice(start, start + COLUMNS)
        residuals = S @ vectors[:, some]
        residuals -= vectors[:, some] * values[some]
        parts.append(certify(values[some], vectors[:, some], residuals, floor, probe, None, gram, float(values[0])))
    residual, rounding = (np.concatenate([getattr(part, name) for part in parts]) for name in ("residuals", "rounding"))
    return Errors(values, residual, rounding, parts[0].method)


def float64_floor(n_full: int, chain: int, trace: float, scaling: Scaling | None, largest: float) -> float:
    """Bound the absolute rounding error of S u in float64, for any order of summation.

    Parameters
    ----------
    n_full : N, the order of S.
    chain : number of additions that one sum over the rows of A goes through at most.
    """
    # Scales come from sums of the same length, and both sides of S are scaled.
    sums = chain if scaling is None or scaling.scale is None else 3 * chain
    return float(UNIT * (n_full + sums + 16) * trace + far_means(scaling, largest) * largest)


def chain_of(matrix: Matrix, statistic: Statistic) -> int:
    """Return the number of additions that one sum over the rows of A goes through at most, in one sweep."""
    longest = max(stop - start for start, stop in matrix.partitions)
    length = min(statistic.tile_length(matrix.n_full, 8), longest)
    # Tiles centred by their own means add one row each for the difference of the means.
    return int(length + 2 * -(-longest // length) + 2 * len(matrix.partitions))


def floor_of(matrix: Matrix, statistic: Statistic, trace: float, largest: float) -> float:
    """Bound the absolute rounding error of S u for a statistic of float64 tiles of this matrix."""
    return float64_floor(matrix.n_full, chain_of(matrix, statistic), trace, matrix.scaling, largest)


def far_means(scaling: Scaling | None, largest: float) -> float:
    """Bound the error of S relative to its largest eigenvalue, from means and values that are stored as float64.

    An error e = eps |mean| (over all features, scaled) in the rows of A is at most 2 sqrt(lambda) e + e^2 in S.
    """
    if scaling is None or largest <= 0:
        return 0.0
    with np.errstate(over="ignore"):
        centre = scaling.mean if scaling.scale is None else scaling.mean / scaling.scale
        off = np.finfo(np.float64).eps * np.linalg.norm(centre) / np.sqrt(largest)
        return float(2 * off + off**2)


def reachable(errors: Errors, null: Array) -> float:
    """Return the smallest tolerance that rounding lets these pairs reach."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.max(np.where(null | (errors.values <= 0), 0.0, errors.rounding / errors.values), initial=0.0))

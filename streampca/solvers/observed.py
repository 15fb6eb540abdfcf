"""Scores by least squares over the observed values of each sample, in one sweep.

    z_n = M_n^-1 sum_j v_j x_nj,   M_n = sum_j v_j v_j',   sums over the features j that sample n has

A missing value at its mean adds nothing to the first sum. Projection of filled samples takes M_n for the identity, and
so moves samples with many missing values towards the centre. Each score has the standard error
sqrt(s2_n (M_n^-1)_ii), s2_n = sum_j (x_nj - v_j'z_n)^2 / (observed values - k).

References: Nelson, Taylor & MacGregor (1996), Chemom. Intell. Lab. Syst. 35, 45; smartpca calls it lsqproject.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streampca._typing import Array
from streampca.solvers.em.factors import Packing
from streampca.solvers.em.statistics import EStep, in_pieces
from streampca.sources import Source
from streampca.sweep.memory import NUMBA_BYTES, Needs
from streampca.sweep.missing import MissingEntries
from streampca.sweep.statistics import Pieces, Statistic
from streampca.sweep.sweep import Sweeps

LEAST_EIGENVALUE = 1e-10  # of M_n; below it the values of a sample do not determine its scores


class Placed(NamedTuple):
    """Samples placed by their observed values; NaN if these do not determine the scores.

    Attributes
    ----------
    scores, deviation : (n, k) scores and their standard errors.
    filled : (n, k) sums of v x, the scores of samples with missing values at the mean.
    squares : (n,) squared lengths, as if complete: |z|^2 + |residual|^2 features / observed values.
    """

    scores: Array
    deviation: Array
    filled: Array
    squares: Array


def observed_needs(source: Source, axis: int, k: int) -> Needs:
    """Return the memory of one sweep, cut along an axis."""
    N, sums = source.shape[1 - axis], k * (k + 1) // 2 + k + 2
    length = EStep.rows_of(k, Statistic().tile_length(N, 8))
    return Needs(
        axis,
        # A tile, its missing entries, the k x k matrices of its rows.
        tile=N * length * 12 + 8 * length * 6 * (k + 1) ** 2,
        row=8 * (3 * k + 1) if axis == 0 else 0,
        partial=8 * N * sums if axis == 1 else 0,
        driver=8 * (source.shape[0] * (6 * k + 2) + source.shape[1] * 3 * k + 2 * N * sums),
        libraries=NUMBA_BYTES,
    )


def place_observed(sweeps: Sweeps, components: Array, check: bool) -> Placed:
    """Return the samples of a matrix whose scaling is known, by their observed values; one sweep.

    Parameters
    ----------
    components : (k, d); their rows need not be orthonormal.
    check : as for `Sweeps.run`.
    """
    V, k = np.ascontiguousarray(components.T), len(components)
    if sweeps.matrix.axis == 0:
        pieces, _ = sweeps.run(ObservedRows(V, _products(V)), "scores", check)
    else:
        (sums, off), _ = sweeps.run(ObservedColumns(V), "scores", check)
        total = _products(V).sum(axis=0)
        pieces = in_pieces(lambda rows: _solved(sums[rows], total - off[rows], len(V)), len(sums), k, sweeps.threads)
    return _placed(np.concatenate(pieces), k)


def place_block(A: Array, components: Array) -> Placed:
    """Return the samples of a tile A (t x d), scaled, with NaN for missing values, which are replaced by zero."""
    V, pieces = np.ascontiguousarray(components.T), list[Array]()
    ObservedRows(V, _products(V)).update(pieces, A, 0, MissingEntries.taken(A))
    return _placed(pieces[0], len(components))


@dataclass(frozen=True)
class ObservedRows(Pieces):
    """The fields of `Placed` of each row of A, a sample.

    Parameters
    ----------
    V : (d, k).
    products : (d, width + 1) of `_products`.
    """

    V: Array
    products: Array
    wants_missing = True

    def tile_length(self, n_full: int, itemsize: int) -> int:
        """Return the number of rows of a tile, for the products and their matrices."""
        return EStep.rows_of(self.V.shape[1], super().tile_length(n_full, itemsize))

    def update(self, value: list[Array], A: Array, start: int, missing: MissingEntries | None = None) -> None:  # noqa: ARG002
        """Append the rows of this tile."""
        sums = np.column_stack([A @ self.V.astype(A.dtype), np.einsum("ij,ij->i", A, A, dtype=np.float64)])
        off = 0.0 if missing is None else missing.sums_of_rows(self.products)
        left = np.broadcast_to(self.products.sum(axis=0) - off, (len(A), self.products.shape[1]))
        value.append(_solved(sums, left, len(self.V)))


@dataclass(frozen=True)
class ObservedColumns(Statistic):
    """A'V and the squared lengths of the columns of A, which are samples; and `_products` over their missing values."""

    V: Array
    wants_missing = True

    def zero(self, n_full: int) -> tuple[Array, Array]:
        """Return empty sums."""
        return np.zeros((n_full, self.V.shape[1] + 1)), np.zeros((n_full, _products(self.V[:1]).shape[1]))

    def update(self, value: tuple[Array, Array], A: Array, start: int, missing: MissingEntries | None = None) -> None:
        """Add the features of this tile."""
        sums, off = value
        V = self.V[start : start + len(A)]
        sums[:, :-1] += A.T @ V.astype(A.dtype)
        sums[:, -1] += np.einsum("ij,ij->j", A, A, dtype=np.float64)
        if missing is not None:
            missing.add_to_columns(_products(V), off)


def _products(V: Array) -> Array:
    """Return v v' of each row, packed, and 1 to count it."""
    return np.column_stack([Packing(V.shape[1]).outer(V), np.ones(len(V))])


def _solved(sums: Array, left: Array, n_features: int) -> Array:
    """Return the fields of `Placed` for some samples, (t, 3 k + 1).

    Parameters
    ----------
    sums : (t, k + 1) sum of v x, and the squared length.
    left : (t, width + 1) `_products` over the observed values.
    """
    b, squares, observed = sums[:, :-1], sums[:, -1], left[:, -1]
    k = b.shape[1]
    values, R = np.linalg.eigh(Packing(k).unpacked(left[:, :-1]))
    values[values[:, 0] <= LEAST_EIGENVALUE] = np.nan
    inverse = R / values[:, None, :]
    z = np.einsum("nij,nj->ni", inverse, np.einsum("nji,nj->ni", R, b))
    residual = np.maximum(squares - (b * z).sum(axis=1), 0.0)
    noise = residual / np.where(observed > k, observed - k, np.nan)
    deviation = np.sqrt(noise[:, None] * (inverse * R).sum(axis=2))
    whole = (z**2).sum(axis=1) + residual * n_features / np.maximum(observed, 1)
    return np.column_stack([z, deviation, b, whole])


def _placed(rows: Array, k: int) -> Placed:
    return Placed(rows[:, :k], rows[:, k : 2 * k], rows[:, 2 * k : 3 * k], rows[:, -1])

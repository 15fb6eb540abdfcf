"""`krylov`: block power iteration that keeps its blocks (block Lanczos), with Rayleigh-Ritz and a certificate.

    V_1 = orth(start);  each sweep:  W = S V_j,  H = V'W,  T = V'SV,  theta, Y = eigh(T),  R = (I - VV') W = V_{j+1} B
    S u_i - theta_i u_i = R y_i(last block)  for u_i = V y_i,  so  r_i = ||B y_i(last)|| / theta_i  costs no sweep

V is orthogonalised in full, twice. When it would pass the memory limit it is cut back to the best Ritz vectors (thick
restart), to which the next block is coupled as before. The start is random; or what a few sweeps over a tenth of the
rows find from a random one, which takes half a sweep and saves one or two.

References: Golub & Underwood (1977), The block Lanczos method; Wu & Simon (2000), SIAM J. Matrix Anal. Appl. 22, 602;
Musco & Musco (2015), NIPS, for the bound from a random start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streampca.accumulators import Product, ProductAndRows
from streampca.errors import InputError
from streampca.matrix import Matrix
from streampca.solvers.base import (
    NeedsFloat64,
    Solution,
    Wanted,
    certify,
    cure_of,
    far_means,
    first_sweep,
    is_null,
    null_advice,
    rounding,
    shortfall,
    use_float64,
)
from streampca.sweeps import Sweeps

Array = NDArray[Any]

# A warm start sweeps so often at most, or until so near, over one of so many rows.
WARM_SWEEPS = 5
WARM_TOL = 0.05
WARM_STEP = 10
# A gap after the last component is worth more sweeps if it is so many times the tolerance.
CLEAR_GAP = 4


@dataclass(frozen=True)
class Krylov:
    """Block Lanczos with Rayleigh-Ritz and thick restart.

    From one random block it finds no more copies of a repeated eigenvalue than the block has columns: enough for any
    number of components asked for, but a fraction of the variance may then take in others before them.

    Parameters
    ----------
    block_size : columns of each block, b.
    max_basis : columns that the basis V may have; at least k + 2 b, or N.
    keep_rows : keep A V as well, rows of A x the basis: it saves the sweep for the other side's vectors. For a matrix
        cut along features, whose tiles are centred for good from the first sweep on.
    warm_start : begin with the Ritz vectors of a tenth of the rows of A.
    seed : of the random start.
    max_sweeps : after which it stops, wherever it is.
    """

    block_size: int
    max_basis: int
    keep_rows: bool = False
    warm_start: bool = False
    seed: int | np.random.SeedSequence | None = 0
    max_sweeps: int = 200

    def solve(self, sweeps: Sweeps, wanted: Wanted) -> Solution:
        """Return the leading eigenpairs wanted."""
        matrix = sweeps.matrix
        N, n_samples = matrix.n_full, matrix.source.shape[0]
        rng = np.random.default_rng(self.seed)
        basis = Basis(N, min(self.max_basis, N), rng)
        block = basis.start(self.first_block(sweeps, rng))
        W, moments, trace = first_sweep(sweeps, self._statistic(block, matrix), "krylov")
        while True:
            basis.expand(self._taken_apart(W, basis) / (n_samples - 1))
            values, residuals = basis.ritz()
            largest = float(values[0])
            floor = rounding(sweeps, Product(block), dense=False) + far_means(sweeps.matrix.scaling, largest)
            certificate = certify(values, residuals, floor)
            null = is_null(values, N) & (sweeps.matrix.dtype == np.float64)
            count = wanted.count(values, trace)
            sweeps.note = _note(certificate, count, values, trace)
            if count is not None and self.done(values, residuals, certificate, null, count, wanted):
                break
            if basis.complete or sweeps.n_sweeps >= self.max_sweeps:
                count = count or len(values)
                if not (basis.complete and use_float64(sweeps, wanted.tol)):
                    break
                block = basis.restart_from(self.block_size)
            elif (
                count is not None
                and (certificate[:count] > wanted.tol).any()
                and self.rounding_blocks(count, values, residuals, floor, wanted)
                and use_float64(sweeps, wanted.tol)
            ):
                block = basis.restart_from(self.block_size)
            else:
                following = basis.next_block(self.block_size, count if count is not None else len(values))
                if following is None:
                    count = count or len(values)
                    break
                block = following
            statistic = self._statistic(block, sweeps.matrix)
            if sweeps.matrix.scaling is None:
                W, moments, trace = first_sweep(sweeps, statistic, "krylov")
            else:
                W, _ = sweeps.run(statistic, "krylov")
        vectors = basis.vectors(count)
        cure = cure_of(sweeps, largest, wanted, self.cure(sweeps, basis))
        advice = shortfall(certificate[:count], null[:count], wanted, cure)
        if wanted.count(values[:count], trace) is None and not advice:
            advice = f"only {count} components were found under the memory limit; raise it"
        scaling = sweeps.matrix.scaling
        assert scaling is not None
        return Solution(
            values[:count], vectors, certificate[:count], trace, moments, scaling,
            converged=not advice, advice=advice or null_advice(null[:count]),
            following=float(values[count]) if count < len(values) else None,
            rows=basis.kept_rows(count) if self.keep_rows else None,
        )  # fmt: skip

    def first_block(self, sweeps: Sweeps, rng: np.random.Generator) -> Array:
        """Return the block to begin with."""
        N = sweeps.matrix.n_full
        b = min(self.block_size, N)
        if self.warm_start:
            part = sweeps.thinned(WARM_STEP)
            solver = replace(self, keep_rows=False, warm_start=False, max_sweeps=WARM_SWEEPS)
            try:
                found = solver.solve(part, Wanted(b, None, WARM_TOL)).vectors
            except (InputError, NeedsFloat64):
                # What is wrong with these rows may not be wrong with all of them; if it is, the sweep itself says so.
                found = np.empty((N, 0))
            sweeps.warm_seconds, sweeps.bytes_read = sum(part.seconds), sweeps.bytes_read + part.bytes_read
            if found.shape[1] == b:
                return found
        return rng.standard_normal((N, b))

    def done(
        self, values: Array, residuals: Array, certificate: Array, null: Array, count: int, wanted: Wanted
    ) -> bool:
        """Tell whether each component is within the tolerance, and their span is, where a gap sets it apart.

        The part of a component outside the true span has the squared length (r_i theta_i / (theta_i - theta_{k+1}))^2
        at most (Davis & Kahan). Where the gap is so small that tol cannot tell the two sides apart, it is not asked.
        """
        if not (certificate[:count] <= wanted.tol)[~null[:count]].all():
            return False
        if wanted.n_components is None or count == len(values) or null[:count].any():
            return True
        gap = values[:count] - values[count]
        if gap[-1] <= CLEAR_GAP * wanted.tol * values[count]:
            return True
        return bool(np.mean((residuals[:count] / gap) ** 2) <= wanted.tol)

    def _statistic(self, block: Array, matrix: Matrix) -> Product | ProductAndRows:
        Q = block.astype(matrix.dtype)
        return ProductAndRows(Q) if self.keep_rows else Product(Q)

    def _taken_apart(self, value: Any, basis: Basis) -> Array:
        """Return the product; the rows, if kept, go to the basis."""
        if not self.keep_rows:
            return np.asarray(value)
        product, rows = value
        basis.rows.append(np.concatenate(rows))
        return np.asarray(product)

    def rounding_blocks(self, count: int, values: Array, residuals: Array, floor: float, wanted: Wanted) -> bool:
        """Tell whether rounding is what keeps the wanted certificates above tol: the residuals have come down to it."""
        reach = np.maximum(wanted.tol * values[:count] - floor * values[0], 2 * floor * values[0])
        return bool((residuals[:count] <= reach).all())

    def cure(self, sweeps: Sweeps, basis: Basis) -> str:
        """Say what keeps the certificates above the tolerance, and what helps."""
        if sweeps.n_sweeps >= self.max_sweeps:
            return f"that were {self.max_sweeps} sweeps; raise tol"
        if basis.full:
            return "the basis is as large as the memory limit allows; raise it, or ask for fewer components"
        return "the eigenvalue is too small beside the largest for double precision; ask for fewer components"


def _note(certificate: Array, count: int | None, values: Array, trace: float) -> str:
    if count is None:
        return f"{values.sum() / trace:.1%} of the variance so far"
    return f"certificate {certificate[:count].max():.1e}"


class Basis:
    """The orthonormal basis V (N x m), its projected matrix T = V'SV, and the last block's residual."""

    def __init__(self, N: int, capacity: int, rng: np.random.Generator):
        self.V = np.empty((N, capacity), order="F")
        self.T = np.zeros((capacity, capacity))
        self.m = 0
        self.b = 0
        self.full = False
        self.rows: list[Array] = []
        self._rng = rng

    @property
    def complete(self) -> bool:
        """Tell whether V spans the whole space."""
        return self.m == len(self.V)

    def start(self, block: Array) -> Array:
        """Begin with the span of this block."""
        self.m, self.b, self.rows = 0, block.shape[1], []
        self.V[:, : self.b] = np.linalg.qr(block)[0]
        return self.V[:, : self.b]

    def expand(self, W: Array) -> None:
        """Take in W = S V_j: a new column of blocks of T, and what of W lies outside V."""
        j, m = self.m, self.m + self.b
        V = self.V[:, :m]
        H = V.T @ W
        R = W - V @ H
        again = V.T @ R
        R -= V @ again
        H += again
        self.T[:m, j:m] = H
        self.T[j:m, :m] = H.T
        self.T[j:m, j:m] = (H[j:m] + H[j:m].T) / 2
        self.R = R
        self.m = m

    def ritz(self) -> tuple[Array, Array]:
        """Return all Ritz values, descending, and their residuals ||S u - theta u||."""
        m = self.m
        values, Y = np.linalg.eigh(self.T[:m, :m])
        self.values, self.Y = np.maximum(values[::-1], 0.0), Y[:, ::-1]
        self._Q, self._B = np.linalg.qr(self.R)
        residuals = np.linalg.norm(self._B @ self.Y[m - self.b :], axis=0)
        return self.values, residuals if not self.complete else np.zeros(m)

    def vectors(self, count: int) -> Array:
        """Return the leading Ritz vectors (N x count)."""
        return np.asarray(self.V[:, : self.m] @ self.Y[:, :count])

    def kept_rows(self, count: int) -> Array:
        """Return A U for the leading Ritz vectors U, from the blocks of A V."""
        stops = np.cumsum([0] + [block.shape[1] for block in self.rows])
        Y = self.Y[:, :count].astype(self.rows[0].dtype)
        total = np.zeros((len(self.rows[0]), count), Y.dtype)
        for block, start, stop in zip(self.rows, stops[:-1], stops[1:], strict=True):
            total += block @ Y[start:stop]
        return total

    def next_block(self, block_size: int, kept: int) -> Array | None:
        """Return the next block, orthonormal to V; restart first if it would not fit; None if even that is no help."""
        N, capacity = self.V.shape
        b = min(block_size, N - self.m)
        block = self._directions(b)
        if self.m + b > capacity:
            keep = min(max(kept + block_size // 2, self.m // 2), capacity - b)
            if keep < kept:
                self.full = True
                return None
            self.V[:, :keep] = self.vectors(keep)
            if self.rows:
                self.rows = [self.kept_rows(keep)]
            self.T[:] = 0
            np.fill_diagonal(self.T[:keep, :keep], self.values[:keep])
            self.m = keep
        self.b = b
        new = self.V[:, self.m : self.m + b]
        new[:] = _orthonormal_to(self.V[:, : self.m], block)
        return new

    def _directions(self, b: int) -> Array:
        """Return the directions of R, strongest first; random ones where R has none left."""
        U, strength, _ = np.linalg.svd(self._B)
        block = (self._Q @ U)[:, :b]
        exhausted = strength[:b] <= 1e-14 * self.values[0]
        if exhausted.any():
            block[:, exhausted] = self._rng.standard_normal((len(block), int(exhausted.sum())))
        if block.shape[1] < b:
            block = np.column_stack([block, self._rng.standard_normal((len(block), b - block.shape[1]))])
        return np.asarray(block)

    def restart_from(self, block_size: int) -> Array:
        """Forget T, and begin again with the best Ritz vectors as first block."""
        return self.start(self.vectors(min(block_size, self.m)))


def _orthonormal_to(V: Array, block: Array) -> Array:
    for _ in range(2):
        block = np.linalg.qr(block - V @ (V.T @ block))[0]
    return block

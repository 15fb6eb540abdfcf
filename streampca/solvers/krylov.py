"""`krylov`: block power iteration that keeps its blocks (block Lanczos), with Rayleigh-Ritz and a certificate.

    V_1 = orth(start);  each sweep:  W = S V_j,  H = V'W,  T = V'SV,  theta, Y = eigh(T),  R = (I - VV') W = V_{j+1} B
    S u_i - theta_i u_i = R y_i(last block)  for u_i = V y_i,  so  r_i = ||B y_i(last)|| / theta_i  costs no sweep

Float32 tiles find the vectors. Their rounding is measured by probes in the first sweep; where that is not enough, the
loop continues in float64 from the Ritz vectors, and the first sweep there is the check.

V is orthogonalised in full, twice. When it would pass the memory limit it is cut back to the best Ritz vectors (thick
restart), to which the next block is coupled as before. The start is random; or the result of a few sweeps over a tenth
of the rows from a random one, which takes half a sweep and saves one or two.

References: Golub & Underwood (1977), The block Lanczos method; Wu & Simon (2000), SIAM J. Matrix Anal. Appl. 22, 602;
Musco & Musco (2015), NIPS, for the bound from a random start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.solvers.base import (
    PROBE_TOL,
    TOO_SMALL,
    NeedsFloat64,
    Solution,
    Wanted,
    finish,
    first_sweep,
    is_null,
    use_float64,
)
from streampca.solvers.certificate import MARGIN, PROBES, Errors, Probe, RowProbe, certify, floor_of
from streampca.solvers.cost import PRODUCT_RATE, Cost, Problem, block_size
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Needs, footprint
from streampca.sweep.statistics import Product, ProductAndRows, Statistic
from streampca.sweep.sweep import Sweeps

WARM_SWEEPS = 5  # at most
WARM_TOL = 0.05  # stop the warm start at this estimate
WARM_STEP = 10  # use one row in ten
WARM_ROWS = 500  # of A for each vector, at least, for a warm start
SWEEPS = 8  # expected, at the default tolerance
BASIS_SHARE = 0.2  # of the memory limit, for the basis
ROWS_SHARE = 0.25  # of the memory limit, for rows of A V that are kept
# A gap after the last component, relative to the tolerance, that is worth more sweeps.
CLEAR_GAP = 4
# Share of the tolerance that float32 has to reach by its own estimate before float64 takes over.
HAND_OVER = 0.95
FLOAT32_REACH = 1e-6  # estimates of float32 products may stall below


@dataclass(frozen=True)
class Krylov:
    """Block Lanczos with Rayleigh-Ritz and thick restart.

    From one random block it finds at most as many copies of a repeated eigenvalue as the block has columns: enough for
    any number of components asked for, but for a fraction of the variance other components may come before them.

    Parameters
    ----------
    block_size : columns of each block, b.
    max_basis : columns that the basis V may have; at least k + 2 b, or N.
    keep_rows : keep A V as well, rows of A x the basis: it saves the sweep for the components of a matrix that is cut
        along features.
    warm_start : start with the Ritz vectors of a tenth of the rows of A.
    seed : of the random start.
    max_sweeps : limit on the number of sweeps.
    """

    block_size: int
    max_basis: int
    keep_rows: bool = False
    warm_start: bool = False
    seed: int | np.random.SeedSequence | None = 0
    max_sweeps: int = 200

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost, with a basis that takes a fixed share of the limit, and rows that are kept if they fit.

        Neither depends on the number of threads: the same input and limit give the same bits.
        """
        N, axis, k, budget = problem.n_full, problem.axis, problem.k, problem.budget
        dtype = tile_dtype(problem.source.dtype)
        b = min(block_size(k), N)
        count = k or b
        probes = PROBES if dtype != np.float64 and problem.tol >= PROBE_TOL else 0
        least = min(N, count + 2 * b)
        # Next to the basis: the product, its residual and their factors, Ritz vectors and their residuals, and probes.
        others = 8 * N * (5 * b + 2 * count + 2 * probes)
        needs = Needs(
            axis, problem.tile_bytes(Statistic(), b), problem.score_bytes, partial=8 * N * (b + probes),
            driver=others + 8 * N * least + problem.components_bytes(),
        )  # fmt: skip
        room = budget.limit - footprint(problem.source, needs, budget)[1].peak(1)
        wanted = min(N, max(least, k + 12 * b)) if k is not None else N
        basis = basis_length(problem, 8 * N, least, wanted, room)
        # Rows are kept for a somewhat shorter basis: mostly it does not grow as long as that. A tolerance below what
        # probes can certify ends in float64 tiles. Probes keep a row of eight bytes and one of four each.
        short = min(basis, max(least, count + 6 * b))
        itemsize = 8 if problem.tol < PROBE_TOL else dtype.itemsize
        rows_bytes = problem.n_block * (itemsize * (short + b + 2 * count) + 12 * probes)
        fits = rows_bytes <= min(room - 8 * N * (short - least), budget.limit * ROWS_SHARE)
        keep_rows = axis == 1 and k is not None and fits
        if keep_rows:
            basis = short
        grown = 8 * N * (basis - least) + (rows_bytes if keep_rows else 0)
        needs = replace(needs, driver=needs.driver + grown, after=problem.after_bytes())
        sweeps = expected_sweeps(problem, b)
        total = sweeps + int(axis == 1 and not keep_rows)
        flops = 4.0 * problem.n_block * N * b + 8.0 * N * b * b * sweeps
        warm_start = k is not None and problem.source.warm_starts and problem.n_block >= WARM_ROWS * b
        return Cost(
            cls(block_size(k), basis, keep_rows, warm_start, problem.seed), "krylov", needs, total,
            total * (problem.read_seconds + flops / PRODUCT_RATE),
            f"blocks of {b} need about {sweeps} sweeps, and a basis of {N} x {basis}",
        )  # fmt: skip

    def solve(self, sweeps: Sweeps, wanted: Wanted) -> Solution:
        """Return the leading eigenpairs wanted."""
        matrix = sweeps.matrix
        rng = np.random.default_rng(self.seed)
        basis = Basis(matrix.n_full, min(self.max_basis, matrix.n_full), rng)
        block = basis.start(self.first_block(sweeps, rng))
        probes = wanted.probes and (matrix.axis == 0 or self.keep_rows)
        value, moments, trace, probe = first_sweep(sweeps, _product(block, sweeps, self.keep_rows), "krylov", probes)
        # Float64 has the last word where a certificate is wanted and there is no probe, or float32 does not reach tol.
        handed_over = matrix.dtype != np.float64 and (wanted.tol < PROBE_TOL or (wanted.certified and probe is None))
        aim = replace(wanted, tol=max(HAND_OVER * wanted.tol, FLOAT32_REACH)) if handed_over else wanted
        errors = self._iterate(sweeps, basis, value, aim, trace, probe)
        if handed_over or (probe is not None and (errors.certificate > wanted.tol).any()):
            use_float64(sweeps)
            block = basis.start(basis.vectors(min(len(errors.values), self.block_size, basis.m)))
            value, _ = sweeps.run(_product(block, sweeps, matrix.axis == 1), "check")
            # Rows of float64 are kept for the check alone: those of a whole basis are not in the plan.
            errors = replace(self, keep_rows=False)._iterate(sweeps, basis, value, wanted, trace, None)
        count = len(errors.values)
        return finish(
            sweeps, wanted, errors, basis.vectors(count), trace, moments, self.hint(sweeps, basis),
            f"only {count} components fit the memory limit; increase it",
            following=float(basis.values[count]) if count < len(basis.values) else None,
            rows=basis.kept_rows(count) if sum(block.shape[1] for block in basis.rows) == basis.m else None,
        )  # fmt: skip

    def _iterate(
        self, sweeps: Sweeps, basis: Basis, value: Any, wanted: Wanted, trace: float, probe: Probe | RowProbe | None
    ) -> Errors:
        """Expand the basis, given the product with its first block, until the wanted pairs are found; returns errors.

        It also ends where nothing more is to be gained: at `max_sweeps`, at the memory limit, or at rounding.
        """
        n_samples = sweeps.matrix.source.shape[0]
        while True:
            basis.expand(_product_of(value, basis) / (n_samples - 1))
            values = basis.ritz()
            last = basis.complete or sweeps.n_sweeps >= self.max_sweeps
            count = wanted.count(values, trace) or (len(values) if last else None)
            errors = None if count is None else measured(sweeps, basis, probe, count, trace)
            if errors is not None and (last or self.done(sweeps, values, errors, wanted) or limited(errors, wanted)):
                return errors
            sweeps.note = _note(errors, values, trace)
            block = basis.next_block(self.block_size, count or len(values))
            if block is None:
                return errors or measured(sweeps, basis, probe, len(values), trace)
            value, _ = sweeps.run(_product(block, sweeps, self.keep_rows), "krylov")

    def first_block(self, sweeps: Sweeps, rng: np.random.Generator) -> Array:
        """Return the block to start with."""
        N = sweeps.matrix.n_full
        b = min(self.block_size, N)
        if self.warm_start:
            part = sweeps.thinned(WARM_STEP)
            solver = replace(self, keep_rows=False, warm_start=False, max_sweeps=WARM_SWEEPS)
            try:
                found = solver.solve(part, Wanted(b, None, WARM_TOL, "none")).vectors
            except (InputError, NeedsFloat64):
                # What is wrong with these rows may not be wrong with all of them; if it is, the sweep itself says so.
                found = np.empty((N, 0))
            sweeps.warm_seconds, sweeps.bytes_read = sum(part.seconds), sweeps.bytes_read + part.bytes_read
            if found.shape[1] == b:
                return found
        return rng.standard_normal((N, b))

    def done(self, sweeps: Sweeps, values: Array, errors: Errors, wanted: Wanted) -> bool:
        """Whether each component is within the tolerance, and their span is, where a gap separates it from the rest.

        The part of a component outside the true span has the squared length (r_i theta_i / (theta_i - theta_{k+1}))^2
        at most (Davis & Kahan). A gap too small for tol to separate the two sides is not asked for.
        """
        count = len(errors.values)
        null = is_null(errors.values, sweeps.matrix.n_full) & (sweeps.matrix.dtype == np.float64)
        if not (errors.certificate <= wanted.tol)[~null].all():
            return False
        if wanted.n_components is None or count == len(values) or null.any():
            return True
        gap = errors.values - values[count]
        if gap[-1] <= CLEAR_GAP * wanted.tol * values[count]:
            return True
        return bool(np.mean((errors.residuals / gap) ** 2) <= wanted.tol)

    def hint(self, sweeps: Sweeps, basis: Basis) -> str:
        """Report what keeps the certificates above the tolerance, and what helps."""
        if sweeps.n_sweeps >= self.max_sweeps:
            return f"stopped after max_sweeps={self.max_sweeps}; increase tol"
        if basis.full:
            return "the basis is as large as the memory limit allows; increase it, or ask for fewer components"
        return TOO_SMALL


def _product(block: Array, sweeps: Sweeps, keep_rows: bool) -> Statistic:
    # By row, for the kernels that `product` uses.
    Q = block.astype(sweeps.matrix.dtype, order="C")
    return ProductAndRows(Q) if keep_rows else Product(Q)


def _product_of(value: Any, basis: Basis) -> Array:
    """Return the product; the rows, if kept, go to the basis."""
    if not isinstance(value, tuple):
        basis.rows = []
        return np.asarray(value)
    product, rows = value
    basis.rows.append(np.concatenate(rows))
    return np.asarray(product)


def measured(sweeps: Sweeps, basis: Basis, probe: Probe | RowProbe | None, count: int, trace: float) -> Errors:
    """Return the errors of the leading Ritz pairs: certified, or estimates where float32 tiles have no probe."""
    matrix, values, residuals = sweeps.matrix, basis.values[:count], basis.residuals(count)
    if probe is None and matrix.dtype != np.float64:
        return Errors(values, np.linalg.norm(residuals, axis=0), np.zeros(count), "none")
    floor = basis.rounding(count) * floor_of(matrix, Statistic(), trace, float(values[0]))
    rows = basis.kept_rows(count) if isinstance(probe, RowProbe) else None
    return certify(values, basis.vectors(count), residuals, floor, probe, rows, gram=matrix.axis == 1)


def limited(errors: Errors, wanted: Wanted) -> bool:
    """Whether rounding keeps certificates above the tolerance, and residuals have come down to it."""
    if errors.method == "none":
        return False
    target, missed = wanted.tol * errors.values, errors.certificate > wanted.tol
    if errors.method == "probe":
        level = np.maximum(HAND_OVER * target, errors.rounding / MARGIN)
    else:
        level = np.where(errors.rounding >= target, errors.rounding, -1.0)
    return bool(missed.any() and (errors.residuals <= level)[missed].all())


def check(sweeps: Sweeps, vectors: Array, trace: float) -> tuple[Array, Errors, Array]:
    """Sweep once in float64 over vectors of a Gram matrix; return Ritz vectors, their errors, and rows.

    The rows A U are the components, so this is the sweep that makes them.
    """
    use_float64(sweeps)
    N, count = vectors.shape
    basis = Basis(N, count, np.random.default_rng(0))
    value, _ = sweeps.run(ProductAndRows(basis.start(vectors)), "components")
    basis.expand(_product_of(value, basis) / (sweeps.matrix.source.shape[0] - 1))
    basis.ritz()
    return basis.vectors(count), measured(sweeps, basis, None, count, trace), basis.kept_rows(count)


def _note(errors: Errors | None, values: Array, trace: float) -> str:
    if errors is None:
        return f"{values.sum() / trace:.1%} of the variance so far"
    return f"{'estimate' if errors.method == 'none' else 'certificate'} {errors.certificate.max():.1e}"


def basis_length(problem: Problem, column_bytes: int, least: int, wanted: int, room: int) -> int:
    """Return the columns of a basis: as many as fit in its share of the limit, or the fewest if there is no room."""
    basis = int(np.clip(problem.budget.limit * BASIS_SHARE // column_bytes, least, wanted))
    return basis if column_bytes * (basis - least) <= room else least


def expected_sweeps(problem: Problem, b: int) -> int:
    """Return how many blocks of b columns a tolerance takes on most data."""
    return min(SWEEPS + max(0, int(-math.log10(problem.tol)) - 3), math.ceil(problem.n_full / b))


class Basis:
    """The orthonormal basis V (N x m), its projected matrix T = V'SV, and the last block's residual."""

    def __init__(self, N: int, capacity: int, rng: np.random.Generator):
        self.V = np.empty((N, capacity), order="F")
        self.T = np.zeros((capacity, capacity))
        self.m = 0
        self.b = 0
        self.weights = np.ones(capacity)
        self.full = False
        self.rows: list[Array] = []
        self._rng = rng

    @property
    def complete(self) -> bool:
        """Whether V spans the whole space."""
        return self.m == len(self.V)

    def start(self, block: Array) -> Array:
        """Start with the span of this block."""
        self.m, self.b, self.rows, self.weights = 0, block.shape[1], [], np.ones(self.V.shape[1])
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

    def ritz(self) -> Array:
        """Return all Ritz values, descending."""
        m = self.m
        values, Y = np.linalg.eigh(self.T[:m, :m])
        self.values, self.Y = np.maximum(values[::-1], 0.0), Y[:, ::-1]
        self._Q, self._B = np.linalg.qr(self.R)
        return np.asarray(self.values)

    def residuals(self, count: int) -> Array:
        """Return S u - theta u (N x count) of the leading Ritz pairs, as far as the products are right."""
        return np.asarray(self.R @ self.Y[self.m - self.b :, :count])

    def rounding(self, count: int) -> Array:
        """Bound the rounding of S u for the leading Ritz vectors, relative to that of a column as it was swept.

        S u is a sum over the columns of V, whose products were rounded separately, and T was made symmetric.
        """
        return np.asarray(2 * np.abs(self.Y[:, :count]).T @ self.weights[: self.m])

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
            self.weights[:keep] = np.abs(self.Y[:, :keep]).T @ self.weights[: self.m]
            self.weights[keep:] = 1
            if self.rows:
                self.rows = [self.kept_rows(keep)]
            self.T[:] = 0
            np.fill_diagonal(self.T[:keep, :keep], self.values[:keep])
            self.m = keep
        self.b = b
        new = self.V[:, self.m : self.m + b]
        V = self.V[:, : self.m]
        for _ in range(2):
            block = np.linalg.qr(block - V @ (V.T @ block))[0]
        new[:] = block
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

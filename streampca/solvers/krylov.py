"""`krylov`: block power iteration that keeps its blocks (block Lanczos), with Rayleigh-Ritz and a certificate.

    V_1 = orth(start);  each sweep:  W = S V_j,  H = V'W,  T = V'SV,  theta, Y = eigh(T),  R = (I - VV') W = V_{j+1} B
    S u_i - theta_i u_i = R y_i(last block)  for u_i = V y_i,  so  r_i = ||B y_i(last)|| / theta_i  costs no sweep

Tiles are float32. Probes in the first sweep measure their rounding; where that is not enough, the loop continues in
float64 from the Ritz vectors, and the first sweep in float64 is the check.

V is orthogonalised in full, twice. When it would exceed the memory limit it is reduced to the best Ritz vectors (thick
restart), to which the next block is coupled as before. The start is random, or the result of a few sweeps over a tenth
of the rows from a random start, which takes half a sweep and saves one or two.

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
from streampca.solvers.base import TOO_SMALL, Solution, Wanted, finish, first_sweep, is_null, rank_bound, use_float64
from streampca.solvers.certificate import MARGIN, PROBES, Errors, Probe, RowProbe, certify, draw_probes, floor_of
from streampca.solvers.cost import PRODUCT_RATE, Cost, Problem, block_size
from streampca.solvers.noise import Background, noise_test
from streampca.solvers.restart import NeedsFloat64
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import Needs, footprint
from streampca.sweep.statistics import Moments, Product, ProductAndRows, Statistic
from streampca.sweep.sweep import Sweeps

WARM_SWEEPS = 5  # at most
WARM_TOL = 0.05  # stop the warm start at this estimate
WARM_STEP = 10  # use one row in ten
WARM_ROWS = 500  # of A for each vector, at least, for a warm start
SWEEPS = 8  # expected, at the default tolerance
BASIS_SHARE = 0.2  # of the memory limit, for the basis
ROWS_SHARE = 0.25  # of the memory limit, for rows of A V that are kept
CLEAR_GAP = 4  # gap after the last component, relative to the tolerance, that is worth more sweeps
HAND_OVER = 0.95  # share of the tolerance that the estimate of float32 must reach before float64 continues
FLOAT32_REACH = 1e-6  # estimates of float32 products may stall below


@dataclass(frozen=True)
class Krylov:
    """Block Lanczos with Rayleigh-Ritz and thick restart.

    From one random block it computes at most as many copies of a repeated eigenvalue as the block has columns. This is
    enough for a number of components; for a fraction of the variance, other components may take the place of copies.

    Parameters
    ----------
    block_size : columns of each block, b.
    max_basis : columns that the basis V may have; at least k + 2 b, or N.
    keep_rows : keep A V as well (rows of A x columns of V), which saves the sweep for the components of a matrix that
        is cut along features.
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
        """Return the cost, with a basis that takes a fixed share of the limit; rows are kept if they fit.

        Neither depends on the number of threads: the same input and limit give the same bits.
        """
        N, axis, k, budget = problem.n_full, problem.axis, problem.k, problem.budget
        dtype = tile_dtype(problem.source.dtype)
        b = min(block_size(k), N)
        count = k or b
        probes = PROBES if problem.wanted.resolve or (dtype != np.float64 and problem.wanted.probes) else 0
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
        # Rows are kept for a shorter basis, which is long enough for most data. A small tolerance ends in
        # float64 tiles. Each probe keeps a row of eight bytes and one of four.
        short = min(basis, max(least, count + 6 * b))
        itemsize = 8 if problem.wanted.needs_float64 else dtype.itemsize
        rows_bytes = problem.n_block * (itemsize * (short + b + 2 * count + probes) + 12 * probes)
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
        """Return the leading eigenpairs."""
        matrix = sweeps.matrix
        rng = np.random.default_rng(self.seed)
        basis = Basis(matrix.n_full, min(self.max_basis, matrix.n_full), rng)
        block = basis.start(self.first_block(sweeps, rng))
        probes = wanted.probes and (matrix.axis == 0 or self.keep_rows)
        extra = self.extra_block(sweeps, wanted, probes)
        product = _product(np.column_stack([block, extra]), sweeps, self.keep_rows)
        value, moments, trace, probe = first_sweep(sweeps, product, "krylov", probes)
        value, background = self.background(sweeps, wanted, value, extra, moments, trace, probe)
        # The last sweeps are float64 if a certificate is required and there is no probe, or float32 does not reach tol.
        handed_over = matrix.dtype != np.float64 and (wanted.needs_float64 or (wanted.certified and probe is None))
        aim = replace(wanted, tol=max(HAND_OVER * wanted.tol, FLOAT32_REACH)) if handed_over else wanted
        errors = self._iterate(sweeps, basis, value, aim, trace, probe, background)
        if handed_over or (probe is not None and errors.missed(wanted.tol).any()):
            use_float64(sweeps)
            block = basis.start(basis.vectors(min(len(errors.values), self.block_size, basis.m)))
            value, _ = sweeps.run(_product(block, sweeps, matrix.axis == 1), "check")
            # Float64 rows are kept for the check only: the plan does not include those of a complete basis.
            errors = replace(self, keep_rows=False)._iterate(sweeps, basis, value, wanted, trace, None, background)
        count = len(errors.values)
        test = None if background is None else noise_test(errors.values, background.spectrum(*basis.pairs(count)))
        return finish(
            sweeps, wanted, errors, basis.vectors(count), trace, moments, self.hint(sweeps, basis),
            f"only {count} components fit the memory limit; increase it",
            following=float(basis.values[count]) if count < len(basis.values) else None,
            rows=basis.kept_rows(count) if sum(block.shape[1] for block in basis.rows) == basis.m else None, noise=test,
        )  # fmt: skip

    def extra_block(self, sweeps: Sweeps, wanted: Wanted, probes: bool) -> Array:
        """Return random vectors for the test of noise, which the first sweep also multiplies; `Probe` has its own."""
        N, probed = sweeps.matrix.n_full, probes and sweeps.matrix.axis == 0 and sweeps.matrix.dtype != np.float64
        return draw_probes(N) if wanted.resolve is not None and not probed else np.empty((N, 0))

    def background(
        self, sweeps: Sweeps, wanted: Wanted, value: Any, extra: Array, moments: Moments, trace: float,
        probe: Probe | RowProbe | None,
    ) -> tuple[Any, Background | None]:  # fmt: skip
        """Separate the products with random vectors; return the value of the first block, and the background."""
        if wanted.resolve is None:
            return value, None
        matrix, b = sweeps.matrix, min(self.block_size, sweeps.matrix.n_full)
        if isinstance(probe, Probe):
            G, SG = probe.G, probe.H
        else:
            product, rows = value if isinstance(value, tuple) else (value, None)
            G, SG = extra, product[:, b:] / (matrix.source.shape[0] - 1)
            value = product[:, :b] if rows is None else (product[:, :b], [piece[:, :b] for piece in rows])
        gram = matrix.axis == 1
        null = np.full(len(G), len(G) ** -0.5) if gram else None
        # The cosine is that of scores for genotypes, of components for other data.
        other_side = gram != matrix.source.is_genotypes
        return value, Background(G, SG, rank_bound(matrix, moments), trace, other_side, null)

    def _iterate(
        self, sweeps: Sweeps, basis: Basis, value: Any, wanted: Wanted, trace: float, probe: Probe | RowProbe | None,
        background: Background | None,
    ) -> Errors:  # fmt: skip
        """Expand the basis until the leading pairs converge; return their errors.

        It also ends at `max_sweeps`, at the memory limit, or where rounding prevents progress. `value` is the product
        with the first block.
        """
        n_samples = sweeps.matrix.source.shape[0]
        while True:
            basis.expand(_product_of(value, basis) / (n_samples - 1))
            values = basis.ritz()
            last = basis.complete or sweeps.n_sweeps >= self.max_sweeps
            count = wanted.count(values, trace) or (len(values) if last else None)
            errors = None if count is None else measured(sweeps, basis, probe, count, trace)
            errors = self._with_noise(errors, basis, background) if wanted.resolve == "signal" else errors
            if errors is not None and (last or self.done(sweeps, values, errors, wanted) or limited(errors, wanted)):
                return errors
            sweeps.note = _note(errors, values, trace)
            block = basis.next_block(self.block_size, count or len(values))
            if block is None:
                return errors or measured(sweeps, basis, probe, len(values), trace)
            value, _ = sweeps.run(_product(block, sweeps, self.keep_rows), "krylov")

    def _with_noise(self, errors: Errors | None, basis: Basis, background: Background | None) -> Errors | None:
        """Mark the pairs that are noise and need not converge."""
        if errors is None or background is None:
            return errors
        pairs = basis.pairs(min(len(basis.values), max(len(errors.values), self.block_size)))
        return replace(errors, noise=background.noise(*pairs, len(errors.values)))

    def first_block(self, sweeps: Sweeps, rng: np.random.Generator) -> Array:
        """Return the block to start with."""
        N = sweeps.matrix.n_full
        b = min(self.block_size, N)
        if self.warm_start:
            part = sweeps.thinned(WARM_STEP)
            solver = replace(self, keep_rows=False, warm_start=False, max_sweeps=WARM_SWEEPS)
            try:
                start = solver.solve(part, Wanted(b, None, WARM_TOL, "none")).vectors
            except (InputError, NeedsFloat64):
                # A problem of these rows may not be one of all rows; if it is, the first sweep raises the error.
                start = np.empty((N, 0))
            sweeps.warm_seconds, sweeps.bytes_read = sum(part.seconds), sweeps.bytes_read + part.bytes_read
            if start.shape[1] == b:
                return start
        return rng.standard_normal((N, b))

    def done(self, sweeps: Sweeps, values: Array, errors: Errors, wanted: Wanted) -> bool:
        """Whether all components are within the tolerance, and also their span if a gap follows the last one.

        The part of a component outside the true span has at most the squared length
        (r_i theta_i / (theta_i - theta_{k+1}))^2 (Davis & Kahan). A gap that tol cannot separate is ignored.
        """
        count = len(errors.values)
        null = is_null(errors.values, sweeps.matrix.n_full) & (sweeps.matrix.dtype == np.float64)
        if errors.missed(wanted.tol)[~null].any():
            return False
        # The span of the components that are not noise.
        count = count if errors.noise is None else int((~errors.noise).sum())
        if wanted.n_components is None or count in (0, len(values)) or null.any():
            return True
        gap = errors.values[:count] - values[count]
        if gap[-1] <= CLEAR_GAP * wanted.tol * values[count]:
            return True
        return bool(np.mean((errors.residuals[:count] / gap) ** 2) <= wanted.tol)

    def hint(self, sweeps: Sweeps, basis: Basis) -> str:
        """Report what keeps the certificates above the tolerance, and what helps."""
        if sweeps.n_sweeps >= self.max_sweeps:
            return f"stopped after max_sweeps={self.max_sweeps}; increase tol"
        if basis.full:
            return "the basis is as large as the memory limit allows; increase it, or request fewer components"
        return TOO_SMALL


def _product(block: Array, sweeps: Sweeps, keep_rows: bool) -> Statistic:
    # Stored by row, for the kernels that `product` uses.
    Q = block.astype(sweeps.matrix.dtype, order="C")
    return ProductAndRows(Q) if keep_rows else Product(Q)


def _product_of(value: Any, basis: Basis) -> Array:
    """Return the product; rows that were kept are appended to the basis."""
    if not isinstance(value, tuple):
        basis.rows = []
        return np.asarray(value)
    product, rows = value
    basis.rows.append(np.concatenate(rows))
    return np.asarray(product)


def measured(sweeps: Sweeps, basis: Basis, probe: Probe | RowProbe | None, count: int, trace: float) -> Errors:
    """Return the errors of the leading Ritz pairs: certified, or estimates if float32 tiles have no probe."""
    matrix, values, residuals = sweeps.matrix, basis.values[:count], basis.residuals(count)
    if probe is None and matrix.dtype != np.float64:
        return Errors(values, np.linalg.norm(residuals, axis=0), np.zeros(count), "none")
    floor = basis.rounding(count) * floor_of(matrix, Statistic(), trace, float(values[0]))
    rows = basis.kept_rows(count) if isinstance(probe, RowProbe) else None
    return certify(values, basis.vectors(count), residuals, floor, probe, rows, gram=matrix.axis == 1)


def limited(errors: Errors, wanted: Wanted) -> bool:
    """Whether rounding keeps certificates above the tolerance, and residuals are as small as rounding."""
    if errors.method == "none":
        return False
    target, missed = errors.tolerances(wanted.tol) * errors.values, errors.missed(wanted.tol)
    if errors.method == "probe":
        level = np.maximum(HAND_OVER * target, errors.rounding / MARGIN)
    else:
        level = np.where(errors.rounding >= target, errors.rounding, -1.0)
    return bool(missed.any() and (errors.residuals <= level)[missed].all())


def check(sweeps: Sweeps, vectors: Array, trace: float) -> tuple[Array, Errors, Array]:
    """Sweep once in float64 over vectors of a Gram matrix; return Ritz vectors, their errors, and rows.

    The rows A U are the components, so that no other sweep is needed for these.
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
    """Return the number of columns of a basis: as many as fit in its share of the limit, or `least` without room."""
    basis = int(np.clip(problem.budget.limit * BASIS_SHARE // column_bytes, least, wanted))
    return basis if column_bytes * (basis - least) <= room else least


def expected_sweeps(problem: Problem, b: int) -> int:
    """Return the number of blocks of b columns that reach a tolerance on most data."""
    return min(SWEEPS + max(0, int(-math.log10(problem.wanted.tol)) - 3), math.ceil(problem.n_full / b))


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
        """Whether V spans all of R^N."""
        return self.m == len(self.V)

    def start(self, block: Array) -> Array:
        """Start with the span of this block."""
        self.m, self.b, self.rows, self.weights = 0, block.shape[1], [], np.ones(self.V.shape[1])
        self.V[:, : self.b] = np.linalg.qr(block)[0]
        return self.V[:, : self.b]

    def expand(self, W: Array) -> None:
        """Add W = S V_j: a new column of blocks of T, and the part R of W outside V."""
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
        """Return S u - theta u (N x count) of the leading Ritz pairs, without rounding of the products."""
        return np.asarray(self.R @ self.Y[self.m - self.b :, :count])

    def rounding(self, count: int) -> Array:
        """Bound the rounding of S u for the leading Ritz vectors, relative to that of one column of a product.

        S u is a sum over the columns of V, whose products are rounded separately, and T is made symmetric.
        """
        return np.asarray(2 * np.abs(self.Y[:, :count]).T @ self.weights[: self.m])

    def vectors(self, count: int) -> Array:
        """Return the leading Ritz vectors (N x count)."""
        return np.asarray(self.V[:, : self.m] @ self.Y[:, :count])

    def pairs(self, count: int) -> tuple[Array, Array, Array]:
        """Return the leading Ritz values, vectors (N x count), and S u - theta u (N x count)."""
        return self.values[:count], self.vectors(count), self.residuals(count)

    def kept_rows(self, count: int) -> Array:
        """Return A U for the leading Ritz vectors U, from the blocks of A V."""
        stops = np.cumsum([0] + [block.shape[1] for block in self.rows])
        Y = self.Y[:, :count].astype(self.rows[0].dtype)
        total = np.zeros((len(self.rows[0]), count), Y.dtype)
        for block, start, stop in zip(self.rows, stops[:-1], stops[1:], strict=True):
            total += block @ Y[start:stop]
        return total

    def next_block(self, block_size: int, kept: int) -> Array | None:
        """Return the next block, orthonormal to V; restart first if it would not fit; None if there is no room."""
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

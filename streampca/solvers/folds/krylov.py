"""`FoldKrylov`: block Lanczos for all training sets of a cross-validation at the same time, in the same sweeps.

Each training set t has a basis of its own (see `streampca.solvers.krylov`). Their blocks lie side by side in one wide
block Q: one sweep is a step of all of them. Cut along features, rows of A are features and A'A Q is one product. A
projection H_t of its block, before and after, selects the samples of a training set and subtracts their mean:

    S_t Q_t = H_t A'A H_t Q_t / (n_t - 1)          rows of other samples are zero, columns sum to zero

Cut along samples, rows of A Q_t of other samples are set to zero before the product with A', and the mean of the
training samples is a correction of rank one:

    S_t Q_t = (A_t'A_t Q_t - n_t delta_t delta_t'Q_t) / (n_t - 1)

A training set whose certificates are within the tolerance is removed from the block. One more sweep gives scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.solvers.base import TOO_SMALL, first_sweep, shortfall
from streampca.solvers.certificate import Errors, certify, floor_of
from streampca.solvers.cost import PRODUCT_RATE, Cost, Problem, block_size
from streampca.solvers.folds.dense import Design, FoldSolution, Trained, inverse_roots, is_zero, trained_on
from streampca.solvers.folds.sums import FoldSums, sum_parts
from streampca.solvers.krylov import WARM_ROWS, Basis, Krylov, basis_length, expected_sweeps, limited
from streampca.sweep.memory import Needs, footprint
from streampca.sweep.statistics import Moments, Product, Statistic, add_product
from streampca.sweep.sweep import Sweeps

Blocks = dict[int, Array]


@dataclass(frozen=True)
class Pairs:
    """Leading eigenvectors of one training set, their errors, which are null, and advice if they miss the tolerance.

    Vectors are as long as its basis: features, or its samples.
    """

    vectors: Array
    errors: Errors
    null: Array
    advice: str


@dataclass(frozen=True)
class FoldProduct(Statistic):
    """A'Y for Y = A Q. Each training set has a range of columns, in which rows of other samples are zero.

    Parameters
    ----------
    held_out, stops : fold that each training set holds out, and where its columns end.
    """

    Q: Array
    folds: Array
    held_out: tuple[int | None, ...]
    stops: tuple[int, ...]

    def zero(self, n_full: int) -> Array:
        """Return the product of no rows."""
        return np.zeros((n_full, self.Q.shape[1]), order="F")

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add the product of this tile."""
        Y, folds = A @ self.Q, self.folds[start : start + len(A)]
        Y[folds < 0] = 0
        for fold, a, b in zip(self.held_out, (0, *self.stops), self.stops, strict=False):
            if fold is not None:
                Y[folds == fold, a:b] = 0
        add_product(value, Y, A)


@dataclass(frozen=True)
class FoldMoments(Statistic):
    """Second moments of [A V_t - shift_t, others - means_t] of the training and of the held-out samples of each set.

    The value is (training sets, 2, k + r, k + r).
    """

    V: Array
    shift: Array
    means: Array
    others: Array
    folds: Array
    held_out: tuple[int | None, ...]

    def zero(self, n_full: int) -> Array:  # noqa: ARG002
        """Return the moments of no rows."""
        width = self.V.shape[1] // len(self.held_out) + self.others.shape[1]
        return np.zeros((len(self.held_out), 2, width, width))

    def update(self, value: Array, A: Array, start: int) -> None:
        """Add the moments of this tile."""
        stop, k = start + len(A), self.V.shape[1] // len(self.held_out)
        Z, folds, others = (A @ self.V).astype(np.float64) - self.shift, self.folds[start:stop], self.others[start:stop]
        for t, fold in enumerate(self.held_out):
            U = np.hstack([Z[:, t * k : (t + 1) * k], others - self.means[t]])
            inside = U[(folds >= 0) & (folds != (-1 if fold is None else fold))]
            value[t, 0] += inside.T @ inside
            if fold is not None:
                value[t, 1] += U[folds == fold].T @ U[folds == fold]


@dataclass(frozen=True)
class FoldEnds(Statistic):
    """For rows that are features: A'(A Q), the rows of A M in order, and the sum of squares of the samples used."""

    Q: Array
    M: Array
    used: Array

    def zero(self, n_full: int) -> Any:
        """Return empty sums and no rows."""
        return np.zeros((n_full, self.Q.shape[1]), order="F"), [], np.zeros(1)

    def update(self, value: Any, A: Array, start: int) -> None:  # noqa: ARG002
        """Add the products and the squares, append the rows."""
        add_product(value[0], A @ self.Q, A)
        value[1].append(A @ self.M)
        value[2][0] += ((A * A) @ self.used).sum(dtype=np.float64)


@dataclass(frozen=True)
class FoldKrylov:
    """Block Lanczos for all training sets in lockstep.

    Parameters
    ----------
    krylov : the solver of each training set; its start is that of all samples.
    """

    krylov: Krylov

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost, with bases that share a fixed part of the limit."""
        N, axis, k, sets = problem.n_full, problem.axis, problem.k or 0, problem.n_folds + 1
        length, b = Statistic().tile_length(N, 8), min(block_size(k), N)
        wide, least = sets * b, min(N, k + 2 * b)
        # Next to the bases: the wide block in both types, its product, residual and factors, and Ritz vectors.
        others = 8 * N * (4 * wide + sets * k + 3 * b + sets * least)
        others += problem.components_bytes(more=1) if axis == 1 else 8 * problem.source.shape[1] * 4 * (sets + 1)
        needs = Needs(
            axis, 8 * N * (length + wide) + (8 * 3 * length * (wide + problem.n_others) if axis == 0 else 0),
            partial=8 * N * wide, driver=others, held=problem.tables_bytes,
        )  # fmt: skip
        room = problem.budget.limit - footprint(problem.source, needs, problem.budget)[1].peak(1)
        basis = basis_length(problem, 8 * N * sets, least, min(N, max(least, k + 12 * b)), room)
        needs = replace(needs, driver=needs.driver + 8 * N * sets * (basis - least), after=problem.after_bytes(more=2))
        steps = expected_sweeps(problem, b)
        sweeps = steps + (1 if axis == 1 else 2)
        # Rates are those of float32; float64 takes twice as long.
        flops = 2 * (4.0 * problem.n_block * N * wide + 8.0 * N * b * b * sets * steps)
        warm_start = problem.source.warm_starts and problem.n_block >= WARM_ROWS * b
        return Cost(
            cls(Krylov(b, basis, False, warm_start, problem.seed)), "krylov", needs, sweeps,
            sweeps * (problem.read_seconds + flops / PRODUCT_RATE),
            f"blocks of {sets} x {b} need about {sweeps} sweeps, and bases of {N} x {basis} for {sets} training sets",
        )  # fmt: skip

    def solve(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        """Return the components and moments of all training sets."""
        return self._by_features(sweeps, design) if sweeps.matrix.axis == 1 else self._by_samples(sweeps, design)

    def _by_features(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        n = sweeps.matrix.n_full
        members = [np.flatnonzero(design.training(fold)) for fold in design.sets]
        rng = np.random.default_rng(self.krylov.seed)
        start = self.krylov.first_block(sweeps, rng)
        learnt: list[Moments] = []
        squares = dict.fromkeys(range(len(members)), 0.0)
        weights, used = design.mean_weights, design.training(None)

        def product(blocks: Blocks) -> Blocks:
            # The first product also has the mean of the samples used, whose distance from the centre adds to rounding.
            width = sum(block.shape[1] for block in blocks.values())
            Q = np.zeros((n, width + (not learnt)), order="F")
            Q[:, width:] = weights
            places, at = {}, 0
            for t, block in blocks.items():
                places[t] = slice(at, at := at + block.shape[1])
                Q[members[t], places[t]] = block - block.mean(axis=0)
            if learnt:
                W, _ = sweeps.run(Product(Q.astype(sweeps.matrix.dtype)), "krylov")
            else:
                statistic = FoldEnds(Q.astype(sweeps.matrix.dtype), Q[:, :0], used.astype(sweeps.matrix.dtype))
                (W, _, (total,)), moments, _, _ = first_sweep(sweeps, statistic, "krylov")
                learnt.append(moments)
                off = max(0.0, float(W[:, -1] @ weights[:, 0]))
                squares.update({t: total / (len(rows) - 1) + 2 * off for t, rows in enumerate(members)})
            parts = {t: W[members[t], place] for t, place in places.items()}
            return {t: (part - part.mean(axis=0)) / (len(part) - 1) for t, part in parts.items()}

        starts = {t: start[rows] - start[rows].mean(axis=0) for t, rows in enumerate(members)}
        pairs = self._lockstep(sweeps, design, starts, product, rng, squares)
        ends = []
        for t, rows in enumerate(members):
            U = np.zeros((n, design.k))
            U[rows] = pairs[t].vectors * inverse_roots(pairs[t].errors.values, pairs[t].null, len(rows))
            ends.append(U)
        dtype = sweeps.matrix.dtype
        M = np.column_stack([ends[0], weights]).astype(dtype)
        statistic = FoldEnds(np.hstack(ends).astype(dtype), M, used.astype(dtype))
        (Z, pieces, (total,)), _ = sweeps.run(statistic, "components and scores")
        lifted = np.concatenate(pieces).astype(np.float64)
        k, count, offset = design.k, int(used.sum()), lifted[:, -1]
        trained = tuple(
            trained_on(Z[:, t * k : (t + 1) * k], design, fold, pairs[t].errors, pairs[t].null, pairs[t].advice)
            for t, fold in enumerate(design.sets)
        )
        trace = (total - count * float(offset @ offset)) / (count - 1)
        components, scaling = np.ascontiguousarray(lifted[:, :-1].T), sweeps.matrix.known_scaling
        return FoldSolution(trained, components, offset, trace, learnt[0], scaling)

    def _by_samples(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        sums = sum_parts(sweeps, FoldSums(design.folds, design.parts), "sums of the folds")
        parts = [design.trained_parts(fold) for fold in design.sets]
        counts = [int(sums.counts[part].sum()) for part in parts]
        offsets = [sums.offset(part) for part in parts]
        d = sweeps.matrix.n_full
        rng = np.random.default_rng(self.krylov.seed)
        start = rng.standard_normal((d, min(self.krylov.block_size, d)))

        def product(blocks: Blocks) -> Blocks:
            stops = np.cumsum([block.shape[1] for block in blocks.values()]).tolist()
            Q = np.hstack(list(blocks.values()))
            held_out = tuple(design.sets[t] for t in blocks)
            statistic = FoldProduct(Q.astype(sweeps.matrix.dtype), design.folds, held_out, tuple(stops))
            W, _ = sweeps.run(statistic, "krylov")
            products = {}
            for (t, block), a, b in zip(blocks.items(), (0, *stops), stops, strict=False):
                between = counts[t] * np.outer(offsets[t], offsets[t] @ block)
                products[t] = (W[:, a:b] - between) / (counts[t] - 1)
            return products

        total = sums.trace() * (sums.counts.sum() - 1)
        squares = {t: total / (counts[t] - 1) + 2 * float(offset @ offset) for t, offset in enumerate(offsets)}
        pairs = self._lockstep(sweeps, design, dict.fromkeys(squares, start), product, rng, squares)
        V = [np.where(pairs[t].null, 0.0, pairs[t].vectors) for t in range(len(parts))]
        means = np.array([design.others[design.training(fold)].mean(axis=0) for fold in design.sets])
        shift = np.concatenate([offset @ v for offset, v in zip(offsets, V, strict=True)])
        statistic = FoldMoments(
            np.hstack(V).astype(sweeps.matrix.dtype), shift, means, design.others, design.folds, design.sets
        )  # fmt: skip
        moments, _ = sweeps.run(statistic, "scores")
        trained = tuple(
            Trained(pairs[t].errors, pairs[t].null, pairs[t].advice, inside, None if fold is None else outside)
            for (t, fold), (inside, outside) in zip(enumerate(design.sets), moments, strict=True)
        )
        components, scaling = np.ascontiguousarray(V[0].T), sweeps.matrix.known_scaling
        return FoldSolution(trained, components, offsets[0], sums.trace(), sums.moments, scaling)

    def _lockstep(
        self, sweeps: Sweeps, design: Design, starts: Blocks, product: Callable[[Blocks], Blocks],
        rng: np.random.Generator, squares: dict[int, float],
    ) -> dict[int, Pairs]:  # fmt: skip
        """Return the eigenpairs of each training set.

        Parameters
        ----------
        starts : first block of each.
        product : returns S_t Q_t for a block Q_t of each training set; one sweep.
        squares : trace of each about the centre of the matrix; the first product may set it.
        """
        krylov, wanted, k = self.krylov, design.wanted, design.k
        bases = {t: Basis(len(block), min(self.krylov.max_basis, len(block)), rng) for t, block in starts.items()}
        blocks = {t: bases[t].start(block[:, : len(block)]) for t, block in starts.items()}
        pairs: dict[int, Pairs] = {}
        while blocks:
            following: Blocks = {}
            worst = 0.0
            for t, W in product(blocks).items():
                basis = bases[t]
                basis.expand(W)
                values = basis.ritz()
                floor = basis.rounding(k) * floor_of(sweeps.matrix, Statistic(), squares[t], float(values[0]))
                gram = sweeps.matrix.axis == 1
                errors = certify(values[:k], basis.vectors(k), basis.residuals(k), floor, gram=gram)
                null = is_zero(errors, len(basis.V))
                worst = max(worst, float(np.max(np.where(null, 0.0, errors.certificate))))
                done = krylov.done(sweeps, values, errors, wanted) or limited(errors, wanted)
                stop = done or basis.complete or sweeps.n_sweeps >= self.krylov.max_sweeps
                block = None if stop else basis.next_block(self.krylov.block_size, k)
                if block is not None:
                    following[t] = block
                    continue
                hint = krylov.hint(sweeps, basis) if not basis.complete else TOO_SMALL
                advice = shortfall(errors, null, wanted, sweeps.matrix.scaling, hint)
                pairs[t] = Pairs(basis.vectors(k), errors, null, advice)
                del bases[t]
            sweeps.note = f"certificate {worst:.1e}, {len(following)} of {len(starts)} training sets left"
            blocks = following
        return pairs

"""Principal components of several training sets at once, from the same sweeps: fold by fold, for cross-validation.

There are K + 1 training sets: all samples that are used, and for each fold all of these except its own. Each has its
own mean and components, as if it were all the data; none takes a sweep of its own. A regression needs second moments of
[scores, others] of each training set, where the others are covariates and targets:

    sum over the training samples of (u - mean)(u - mean)',   u = [z_1 .. z_k, others]

and the same sum over the held-out samples, about the mean of the training samples.

`FoldDense` is for few features or few samples. Cut along samples, scatter matrices of [x, others] are summed fold by
fold, and that of a training set is the sum over its folds. Cut along features, the Gram matrix of each training set is
a part of the one Gram matrix. See `streampca.solvers.folds.krylov` for many of both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.solvers.base import TOO_SMALL, Wanted, is_null, know_scaling, shortfall
from streampca.solvers.certificate import Errors, certify_matrix, floor_of
from streampca.solvers.cost import EIGH_RATE, SCATTER_RATE, Cost, Problem
from streampca.solvers.dense import leading_pairs
from streampca.solvers.folds.sums import FoldScatter, sum_parts
from streampca.sweep.memory import Needs, show_bytes
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import STRIP, Moments, Projection, Scatter, symmetric
from streampca.sweep.sweep import Sweeps


@dataclass(frozen=True)
class Design:
    """The fold of each sample, and the covariates and targets.

    Attributes
    ----------
    folds : (n,) fold of each sample, -1 for samples that are not used.
    n_folds : number of folds, each held out in turn; 0 for one training set of all samples used.
    others : (n, r) covariates and targets, each of mean 0 and variance 1; rows that are not used are zero.
    scale : (r,) divisor of each of the others.
    wanted : components of each training set.
    """

    folds: Array
    n_folds: int
    others: Array
    scale: Array
    wanted: Wanted

    @property
    def k(self) -> int:
        """Number of components of each training set."""
        assert self.wanted.n_components is not None
        return self.wanted.n_components

    @property
    def parts(self) -> int:
        """Number of disjoint parts of the samples used: the folds, or one."""
        return max(1, self.n_folds)

    @property
    def sets(self) -> tuple[int | None, ...]:
        """The fold that each training set holds out; the first holds out none."""
        return (None, *range(self.n_folds))

    def training(self, fold: int | None) -> Array:
        """Return a mask of the training samples if a fold is held out."""
        used = self.folds >= 0
        return used if fold is None else used & (self.folds != fold)

    def trained_parts(self, fold: int | None) -> list[int]:
        """Return the training parts if a fold is held out."""
        return [part for part in range(self.parts) if part != fold]

    @property
    def mean_weights(self) -> Array:
        """Weights (n, 1) of all samples whose sum is the mean of the samples used."""
        used = self.training(None)
        return np.asarray(used / used.sum())[:, None]


@dataclass(frozen=True)
class Trained:
    """Components of one training set, and second moments of [scores (k), others (r)].

    Attributes
    ----------
    errors, null : of the k eigenvalues, and which of these are zero; their scores are zero, too.
    advice : if components miss the tolerance.
    scatter : (k + r, k + r) of the training samples about their mean.
    held_out : the same sum over the held-out samples, about the mean of the training samples; None if there are none.
    """

    errors: Errors
    null: Array
    advice: str
    scatter: Array
    held_out: Array | None


@dataclass(frozen=True)
class FoldSolution:
    """All training sets, that of all samples first, and the vectors of the first one.

    Attributes
    ----------
    components : (k, features used), unit rows; the scores of `trained[0]` are along these.
    offset : (features used,) mean of the samples used, centred and scaled; zero if this is the centre.
    trace : total variance of the samples used.
    moments : of the features, of all samples.
    scaling : centre, and scales of all samples.
    """

    trained: tuple[Trained, ...]
    components: Array
    offset: Array
    trace: float
    moments: Moments
    scaling: Scaling

    @property
    def advice(self) -> str:
        """Advice of the first training set that has any."""
        return next((trained.advice for trained in self.trained if trained.advice), "")


def is_zero(errors: Errors, n_full: int) -> Array:
    """Whether eigenvalues are zero to double precision, or below the bound on their rounding."""
    return np.asarray(is_null(errors.values, n_full) | (errors.values <= errors.rounding))


def inverse_roots(values: Array, null: Array, n_samples: int) -> Array:
    """Return 1 / sqrt(lambda (n - 1)), the factor from A'A u to scores; 0 where lambda is null."""
    safe = np.where(null, 1.0, values)
    return np.where(null, 0.0, 1 / np.sqrt(safe * (n_samples - 1)))


def trained_on(Z: Array, design: Design, fold: int | None, errors: Errors, null: Array, advice: str) -> Trained:
    """Return the result of a training set, from the scores of all samples on its components."""
    U = np.hstack([Z, design.others])
    inside = U[design.training(fold)]
    mean = inside.mean(axis=0)
    inside, held_out = inside - mean, None
    if fold is not None:
        outside = U[design.folds == fold] - mean
        held_out = outside.T @ outside
    return Trained(errors, null, advice, inside.T @ inside, held_out)


def _leading(S: Array, sweeps: Sweeps, design: Design, off: float) -> tuple[Array, Errors, Array, str]:
    """Return eigenvectors of S of a training set, their errors, which are null, and advice if they miss the tolerance.

    S is a difference of sums that are larger by the squared distance of the mean from their centre, `off`.
    """
    values, vectors, _ = leading_pairs(S, design.wanted, 0.0)
    floor = floor_of(sweeps.matrix, Scatter(), float(np.trace(S) + 2 * off), float(values[0]))
    errors = certify_matrix(S, values, vectors, floor, gram=sweeps.matrix.axis == 1)
    null = is_zero(errors, len(S))
    return vectors, errors, null, shortfall(errors, null, design.wanted, sweeps.matrix.scaling, TOO_SMALL)


@dataclass(frozen=True)
class FoldDense:
    """Scatter matrices of the folds, or one Gram matrix, in one sweep; then `eigh` for each training set, in memory."""

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost. Rates are those of float32; float64 takes twice as long."""
        return cls._cost_of_gram(problem) if problem.axis == 1 else cls._cost_of_scatters(problem)

    @classmethod
    def _cost_of_scatters(cls, problem: Problem) -> Cost:
        (n, d), k, folds = problem.source.shape, problem.k or 0, problem.n_folds
        width, length = d + problem.n_others, Scatter().tile_length(d, 8)
        partial = 8 * (max(1, folds) * width**2 + 2 * (folds + 2) * d)
        needs = Needs(
            0,
            # The rows of one fold, with covariates and targets, and a product of strips.
            tile=8 * (length * d + length * width + min(width, STRIP) * width),
            partial=partial,
            # Sums of a training set, S, the workspace of `eigh`, and the moments of the held-out samples.
            driver=8 * (5 * width**2 + 3 * width * k),
            held=problem.tables_bytes,
        )
        sweeps = 1 + problem.fills
        seconds = problem.read_seconds * sweeps + 2 * n * width**2 / SCATTER_RATE
        seconds += (folds + 1) * 4 / 3 * d**3 / EIGH_RATE
        each = f" for each of {folds} folds" if folds else ""
        reason = f"the covariance, {width} x {width}{each}, takes {sweeps} sweep(s) and {show_bytes(partial)}"
        return Cost(cls(), "covariance", needs, sweeps, seconds, reason)

    @classmethod
    def _cost_of_gram(cls, problem: Problem) -> Cost:
        (n, d), k = problem.source.shape, problem.k or 0
        partial = 8 * n * n
        needs = Needs(
            1, 8 * n * (Scatter().tile_length(n, 8) + min(n, STRIP)), partial=partial,
            driver=2 * partial + 8 * n * (4 * k + 3 * problem.n_others) + problem.components_bytes(more=1),
            after=problem.after_bytes(more=2), held=problem.tables_bytes,
        )  # fmt: skip
        seconds = 2 * problem.read_seconds + 2 * d * n * n / SCATTER_RATE
        seconds += (problem.n_folds + 1) * 4 / 3 * n**3 / EIGH_RATE
        what = f"the n x n Gram matrix, {n} x {n}, contains all training sets"
        return Cost(cls(), "gram", needs, 2, seconds, f"{what} and takes one sweep and {show_bytes(partial)}")

    def solve(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        """Return the components and moments of all training sets."""
        return self._from_gram(sweeps, design) if sweeps.matrix.axis == 1 else self._from_scatters(sweeps, design)

    def _from_scatters(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        sums_of = sum_parts(sweeps, FoldScatter(design.folds, design.parts, design.others), "covariances of the folds")
        counts, scatters = sums_of.counts, sums_of.value[1]
        d = scatters.shape[1] - design.others.shape[1]
        for scatter in scatters:
            symmetric(scatter)
            if sums_of.scale is not None:
                scatter[:d] /= sums_of.scale[:, None]
                scatter[:, :d] /= sums_of.scale[None, :]
        # Sums about the same point as the scatters.
        sums = np.zeros((design.parts, scatters.shape[1]))
        sums[:, :d] = sums_of.sums - counts[:, None] * sums_of.origin
        for part in range(design.parts):
            sums[part, d:] = design.others[design.folds == part].sum(axis=0)
        trained, components = [], np.empty((0, d))
        for fold in design.sets:
            parts = design.trained_parts(fold)
            n = int(counts[parts].sum())
            # Added, not subtracted from the total, which would lose digits where a fold has most of the samples.
            total = scatters[parts[0]].copy()
            for part in parts[1:]:
                total += scatters[part]
            mean = sums[parts].sum(axis=0) / n
            total -= n * np.outer(mean, mean)
            S = total[:d, :d] / (n - 1)
            V, errors, null, advice = _leading(S, sweeps, design, float(mean[:d] @ mean[:d]))
            V = np.where(null, 0.0, V)
            held_out = None
            if fold is not None:
                across = np.outer(sums[fold], mean)
                about = scatters[fold] - across - across.T + counts[fold] * np.outer(mean, mean)
                held_out = _projected(about, V)
            else:
                components = V.T
            trained.append(Trained(errors, null, advice, _projected(total, V), held_out))
        offset, scaling = sums_of.offset(design.trained_parts(None)), sweeps.matrix.known_scaling
        return FoldSolution(tuple(trained), components, offset, sums_of.trace(), sums_of.moments, scaling)

    def _from_gram(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        G, moments = sweeps.run(Scatter(), "Gram matrix")
        assert moments is not None
        know_scaling(sweeps, moments)
        symmetric(G)
        trained, trace, M = [], 0.0, np.empty((len(G), 0))
        for fold in design.sets:
            rows = np.flatnonzero(design.training(fold))
            S, off = _centred_part(G, rows)
            if fold is None:
                trace = float(np.trace(S))
            vectors, errors, null, advice = _leading(S, sweeps, design, off)
            del S
            U = np.zeros((len(G), len(null)))
            U[rows] = vectors * inverse_roots(errors.values, null, len(rows))
            if fold is None:
                M = U
            trained.append(trained_on(G @ U, design, fold, errors, null, advice))
        del G
        M = np.column_stack([M, design.mean_weights]).astype(sweeps.matrix.dtype)
        pieces, _ = sweeps.run(Projection(M), "components")
        lifted = np.concatenate(pieces)[:, :-1].astype(np.float64)
        components, offset = np.ascontiguousarray(lifted[:, :-1].T), lifted[:, -1]
        return FoldSolution(tuple(trained), components, offset, trace, moments, sweeps.matrix.known_scaling)


def _projected(R: Array, V: Array) -> Array:
    """Return P'R P for P = diag(V, I): second moments of [scores, others] from those of [x, others]."""
    d = len(V)
    half = np.vstack([V.T @ R[:d], R[d:]])
    return np.hstack([half[:, :d] @ V, half[:, d:]])


def _centred_part(G: Array, rows: Array) -> tuple[Array, float]:
    """Return S of some samples about their mean, from the Gram matrix of all, and the squared length of that mean."""
    S = G[np.ix_(rows, rows)]
    means = S.mean(axis=0)
    S -= means
    S -= (means - means.mean())[:, None]
    S /= len(rows) - 1
    return np.asarray(S), max(0.0, float(means.mean()))

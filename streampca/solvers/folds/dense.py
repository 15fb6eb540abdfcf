"""Principal components of several training sets at once, from the same sweeps: fold by fold, for cross-validation.

There are K + 1 training sets: all samples that are used, and for each fold f all of these but those of f. Each has its
own mean and its own components, as if it were all there is; none takes a sweep of its own. What a regression needs of a
training set are second moments of [scores, others], where the others are covariates and targets:

    sum over the training samples of (u - mean)(u - mean)',   u = [z_1 .. z_k, others]

and the same sum over the held-out samples, about the same (the training samples') mean.

`FoldScatters` is for few features: scatter matrices of [x, others] are summed fold by fold, and those of a training set
are the sum of the other folds'. `FoldGram` is for few samples: every training set's Gram matrix is a part of the whole
one. Where both are many, see `fold_krylov`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.solvers.base import TOO_SMALL, Wanted, is_null, know_scaling, shortfall
from streampca.solvers.certificate import Errors, certify_matrix, floor_of
from streampca.solvers.cost import EIGH_RATE, SCATTER_RATE, Cost, Problem
from streampca.solvers.dense import leading_pairs
from streampca.solvers.folds.sums import FoldScatter, learn_sums
from streampca.sweep.memory import Needs, show_bytes
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import STRIP, Moments, Projection, Scatter, symmetric
from streampca.sweep.sweep import Sweeps


@dataclass(frozen=True)
class Design:
    """Which samples are in which fold, and what stands beside their scores.

    Attributes
    ----------
    folds : (n,) the fold of each sample, -1 for those that are not used.
    n_folds : number of folds, each held out in turn; 0: one training set of all samples used.
    others : (n, r) covariates and targets, each of mean 0 and variance 1; rows that are not used are zero.
    scale : (r,) what each of the others was divided by.
    wanted : components of each training set.
    """

    folds: Array
    n_folds: int
    others: Array
    scale: Array
    wanted: Wanted

    @property
    def k(self) -> int:
        """Components of each training set."""
        assert self.wanted.n_components is not None
        return self.wanted.n_components

    @property
    def parts(self) -> int:
        """Disjoint parts of the samples used: the folds, or all of them."""
        return max(1, self.n_folds)

    @property
    def sets(self) -> tuple[int | None, ...]:
        """Which fold each training set leaves out; the first none."""
        return (None, *range(self.n_folds))

    def training(self, left_out: int | None) -> Array:
        """Mask of the training samples when a fold is held out."""
        used = self.folds >= 0
        return used if left_out is None else used & (self.folds != left_out)

    def trained_parts(self, left_out: int | None) -> list[int]:
        """Return the training parts when a fold is held out."""
        return [part for part in range(self.parts) if part != left_out]


@dataclass(frozen=True)
class Trained:
    """Components of one training set, and second moments of [scores (k), others (r)].

    Attributes
    ----------
    values, certificate, null : (k,) eigenvalues, their certificates, and which are zero: their scores are zero, too.
    means : (r,) of the others.
    scatter : (k + r, k + r) of the training samples about their mean.
    left_out : the same sum over the held-out samples, about the mean of the training samples; None if there are none.
    """

    n_samples: int
    values: Array
    certificate: Array
    null: Array
    means: Array
    scatter: Array
    left_out: Array | None
    n_left_out: int


@dataclass(frozen=True)
class FoldSolution:
    """All training sets, that of all samples first, and the vectors of that one.

    Attributes
    ----------
    components : (k, features that are used), unit rows; the scores of `trained[0]` are along these.
    offset : (features that are used,) mean of the samples used, centred and scaled; zero where these are the centre.
    trace : total variance of the samples used.
    moments : of the features, of all samples.
    scaling : their centre, and scales of all samples.
    """

    trained: tuple[Trained, ...]
    components: Array
    offset: Array
    trace: float
    moments: Moments
    scaling: Scaling
    advice: str = ""


def is_zero(errors: Errors, n_full: int) -> Array:
    """Which eigenvalues are zero as far as float64 can tell."""
    return np.asarray(is_null(errors.values, n_full) | (errors.values <= errors.rounding))


def inverse_roots(values: Array, null: Array, n_samples: int) -> Array:
    """1 / sqrt(lambda (n - 1)), which makes scores of eigenvectors; 0 for those that are null."""
    safe = np.where(null, 1.0, values)
    return np.where(null, 0.0, 1 / np.sqrt(safe * (n_samples - 1)))


def trained_on(Z: Array, design: Design, left_out: int | None, errors: Errors, null: Array) -> Trained:
    """Return the result of a training set, from the scores of all samples on its components."""
    training, k = design.training(left_out), Z.shape[1]
    U = np.hstack([Z, design.others])
    mean = U[training].mean(axis=0)
    inside, outside, n_left_out = U[training] - mean, None, 0
    if left_out is not None:
        rows = U[design.folds == left_out] - mean
        outside, n_left_out = rows.T @ rows, len(rows)
    return Trained(
        len(inside), errors.values, errors.certificate, null, mean[k:], inside.T @ inside, outside, n_left_out
    )


def _leading(S: Array, sweeps: Sweeps, design: Design, off: float) -> tuple[Array, Errors, Array, str]:
    """Return eigenvectors of a training set's S, their errors, which are null, and advice if they miss the tolerance.

    S is a difference of sums that are larger by the squared distance of the mean from their centre, `off`.
    """
    values, vectors, _ = leading_pairs(S, design.wanted, 0.0)
    floor = floor_of(sweeps.matrix, Scatter(), float(np.trace(S) + 2 * off), float(values[0]))
    errors = certify_matrix(S, values, vectors, floor, gram=sweeps.matrix.axis == 1)
    null = is_zero(errors, len(S))
    return vectors, errors, null, shortfall(errors, null, design.wanted, sweeps.matrix.scaling, TOO_SMALL)


# ---------------------------------------------------------------- few features


@dataclass(frozen=True)
class FoldScatters:
    """Scatter matrices of the folds in one sweep, then `eigh` of each training set's, in memory."""

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost: one sweep, one scatter a fold. Rates are those of float32; float64 takes twice as long."""
        (n, d), k, folds = problem.source.shape, problem.k or 0, problem.n_folds
        width, length = d + problem.n_others, Scatter().tile_length(d, 8)
        partial = 8 * (max(1, folds) * width**2 + 2 * (folds + 2) * d)
        needs = Needs(
            0,
            # The rows of one fold, with covariates and targets, and a product of strips.
            tile=8 * (length * d + length * width + min(width, STRIP) * width),
            partial=partial,
            # Sums of a training set, S, the workspace of `eigh`, and the moments of the samples held out.
            driver=8 * (5 * width**2 + 3 * width * k),
            held=problem.tables_bytes,
        )
        sweeps = 1 + problem.fills
        seconds = problem.read_seconds * sweeps + 2 * n * width**2 / SCATTER_RATE
        seconds += (folds + 1) * 4 / 3 * d**3 / EIGH_RATE
        each = f" for each of {folds} folds" if folds else ""
        reason = f"the covariance, {width} x {width}{each}, takes {sweeps} sweep(s) and {show_bytes(partial)}"
        return Cost(cls(), "covariance", needs, sweeps, seconds, reason)

    def solve(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        """Return the components and moments of all training sets."""
        learnt = learn_sums(sweeps, FoldScatter(design.folds, design.parts, design.others), "covariances of the folds")
        scatters = learnt.value[1]
        d = scatters.shape[1] - design.others.shape[1]
        for scatter in scatters:
            symmetric(scatter)
            if learnt.scale is not None:
                scatter[:d] /= learnt.scale[:, None]
                scatter[:, :d] /= learnt.scale[None, :]
        # Sums about the same point as the scatters.
        sums = np.zeros((design.parts, scatters.shape[1]))
        sums[:, :d] = learnt.sums - learnt.counts[:, None] * learnt.origin
        for part in range(design.parts):
            sums[part, d:] = design.others[design.folds == part].sum(axis=0)
        scaling = sweeps.matrix.known_scaling
        trained, advice, components = [], "", np.empty((0, d))
        for left_out in design.sets:
            parts = design.trained_parts(left_out)
            n = int(learnt.counts[parts].sum())
            # Added up, not taken off the whole: that would lose digits where a fold is most of it.
            total = scatters[parts[0]].copy()
            for part in parts[1:]:
                total += scatters[part]
            mean = sums[parts].sum(axis=0) / n
            total -= n * np.outer(mean, mean)
            S = total[:d, :d] / (n - 1)
            V, errors, null, why = _leading(S, sweeps, design, float(mean[:d] @ mean[:d]))
            advice, V = advice or why, np.where(null, 0.0, V)
            outside = None
            if left_out is not None:
                across = np.outer(sums[left_out], mean)
                about = scatters[left_out] - across - across.T + learnt.counts[left_out] * np.outer(mean, mean)
                outside = _projected(about, V)
            n_left_out = 0 if left_out is None else int(learnt.counts[left_out])
            trained.append(
                Trained(n, errors.values, errors.certificate, null, mean[d:], _projected(total, V), outside, n_left_out)
            )  # fmt: skip
            if left_out is None:
                components = V.T
        offset = learnt.offset(list(range(design.parts)))
        return FoldSolution(tuple(trained), components, offset, learnt.trace(), learnt.moments, scaling, advice)


def _projected(R: Array, V: Array) -> Array:
    """P'R P for P = diag(V, I): second moments of [scores, others] from those of [x, others]."""
    d = len(V)
    half = np.vstack([V.T @ R[:d], R[d:]])
    return np.hstack([half[:, :d] @ V, half[:, d:]])


# ---------------------------------------------------------------- few samples


@dataclass(frozen=True)
class FoldGram:
    """The Gram matrix in one sweep, `eigh` of each training set's part of it, and a sweep for the components."""

    @classmethod
    def cost(cls, problem: Problem) -> Cost:
        """Return the cost: one Gram matrix for all training sets, and a sweep for the components."""
        (n, d), k = problem.source.shape, problem.k or 0
        partial = 8 * n * n
        needs = Needs(
            1, 8 * n * (Scatter().tile_length(n, 8) + min(n, STRIP)), partial=partial,
            driver=2 * partial + 8 * n * (4 * k + 3 * problem.n_others) + problem.components_bytes(more=1),
            after=problem.after_bytes(more=2), held=problem.tables_bytes,
        )  # fmt: skip
        seconds = 2 * problem.read_seconds + 2 * d * n * n / SCATTER_RATE
        seconds += (problem.n_folds + 1) * 4 / 3 * n**3 / EIGH_RATE
        what = f"the n x n Gram matrix, {n} x {n}, holds all training sets"
        return Cost(cls(), "gram", needs, 2, seconds, f"{what} and takes one sweep and {show_bytes(partial)}")

    def solve(self, sweeps: Sweeps, design: Design) -> FoldSolution:
        """Return the components and moments of all training sets."""
        G, moments = sweeps.run(Scatter(), "Gram matrix")
        assert moments is not None
        know_scaling(sweeps, moments)
        scaling = sweeps.matrix.known_scaling
        symmetric(G)
        trained, advice, trace = [], "", 0.0
        M = np.empty((len(G), 0))
        for left_out in design.sets:
            rows = np.flatnonzero(design.training(left_out))
            S, off = _centred_part(G, rows)
            if left_out is None:
                trace = float(np.trace(S))
            vectors, errors, null, why = _leading(S, sweeps, design, off)
            del S
            advice = advice or why
            U = np.zeros((len(G), len(null)))
            U[rows] = vectors * inverse_roots(errors.values, null, len(rows))
            if left_out is None:
                M = U
            trained.append(trained_on(G @ U, design, left_out, errors, null))
        del G
        M = np.column_stack([M, mean_weights(design)]).astype(sweeps.matrix.dtype)
        pieces, _ = sweeps.run(Projection(M), "components")
        found = np.concatenate(pieces)[:, :-1].astype(np.float64)
        components, offset = np.ascontiguousarray(found[:, :-1].T), found[:, -1]
        return FoldSolution(tuple(trained), components, offset, trace, moments, scaling, advice)


def mean_weights(design: Design) -> Array:
    """Return what makes the mean of the samples used of all samples, as one column."""
    used = design.training(None)
    return np.asarray(used / used.sum())[:, None]


def _centred_part(G: Array, rows: Array) -> tuple[Array, float]:
    """Return S of some samples about their own mean, from the Gram matrix of all, and how far off that is, squared."""
    S = G[np.ix_(rows, rows)]
    means = S.mean(axis=0)
    S -= means
    S -= (means - means.mean())[:, None]
    S /= len(rows) - 1
    return np.asarray(S), max(0.0, float(means.mean()))

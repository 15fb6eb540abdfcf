"""Scores of new samples from the variants that match those of a fit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import Match
from streampca.solvers.observed import Placed

PROJECTIONS = ("oadp", "lsq", "simple")
LEAST_WEIGHT = 0.01  # share of the squared loadings that the matching variants must have, in any direction
# Differences of scores, in standard errors, within which a sample with the id of a fitted one is the same sample.
SAME = 0.1  # with the same variants
SAME_FEWER = 4.0  # with few of them
BATCH = 4096  # samples whose decompositions are in memory at a time


def check_weights(name: str, components: Array, match: Match) -> Array:
    """Return the products V V' (k x k) of the matching part of the components; raise if too few variants match."""
    weights = components @ components.T
    least = float(np.linalg.eigvalsh(weights)[0])
    if least < LEAST_WEIGHT:
        raise InputError(
            f"{name}: {match.note}; they have {max(least, 0.0):.1%} of the weight of a component, too few for the "
            f"{len(weights)} components; give data with more of the variants, or fit fewer components"
        )
    return np.asarray(weights)


class Projected(NamedTuple):
    """New samples on the components.

    Attributes
    ----------
    scores : (n, k); NaN if the calls of a sample do not determine them.
    distance : (n,) from the space of the components, extrapolated from the calls of a sample to all variants.
    deviation : (n, k) standard errors of the scores by least squares; None for simple projections.
    fitted : (n,) whether a sample is one of the fitted ones, and has its scores of the fit.
    """

    scores: Array
    distance: Array
    deviation: Array | None = None
    fitted: Array | None = None


def project_filled(XV: Array, squares: Array, weights: Array, more: float) -> Projected:
    """Return new samples by simple projection: missing calls are at the mean.

    Parameters
    ----------
    XV : (n, k) products with the matching part of the components.
    squares : (n,) squared lengths of the samples on the matching variants.
    weights : (k, k) of `check_weights`.
    more : number of fitted variants / number of those that match. Above 1 scores are by least squares.
    """
    XV = XV.astype(np.float64)
    simple = XV if more == 1 else np.linalg.solve(weights, XV.T).T
    outside = squares.astype(np.float64) - np.einsum("ij,ij->i", XV, simple)
    return Projected(simple, np.sqrt(np.maximum(outside, 0.0) * more))


def project_observed_calls(placed: Placed, more: float, lengths: Array, projection: str) -> Projected:
    """Return new samples by least squares over their calls; with projection "oadp" without the shrinkage of that.

    Parameters
    ----------
    placed : by their calls of the matching variants.
    more : as for `project_filled`.
    lengths : (k,) singular values of the fitted samples.
    """
    inside = (placed.scores**2).sum(axis=1)
    outside = np.maximum(placed.squares - inside, 0.0) * more
    scores = placed.scores if projection == "lsq" else oadp_scores(placed.scores, inside + outside, lengths)
    return Projected(scores, np.sqrt(outside), placed.deviation)


def own_scores(stored: Array, tolerance: Array, placed: Placed, weights: Array, more: float) -> Array:
    """Whether samples with the ids of fitted ones are these: their scores agree.

    Parameters
    ----------
    stored : (n, k) scores of the fitted samples with these ids; NaN if there is none.
    tolerance : (k,) error of the scores of the fit.
    placed, weights, more : the samples, as for `project_observed_calls` and `project_filled`.
    """
    filled = placed.filled if more == 1 else np.linalg.solve(weights, placed.filled.T).T
    # Fewer variants change scores by up to their standard error; other samples differ by more than it.
    allowed = tolerance + placed.deviation * (SAME + SAME_FEWER * np.sqrt(1 - 1 / more))
    same = [(np.abs(stored - scores) <= allowed).all(axis=1) for scores in (filled, placed.scores)]
    return np.asarray(same[0] | same[1])


def oadp_scores(XV: Array, squares: Array, lengths: Array) -> Array:
    """Return scores of new samples by online augmentation, decomposition and Procrustes (OADP).

    Each new sample, with simple scores x'V and squared length |x|^2, is added to the decomposition of the fitted ones,
    which have the singular values `lengths`. The singular value decomposition of

        [ diag(lengths)  0 ]         rows: fitted samples (in their own basis), the new one;
        [ x'V            h ]         h^2 = |x|^2 - |x'V|^2, the part of x outside the components

    gives new scores of all samples. The rotation and scaling that map those of the fitted samples back to their old
    scores also map the new one to its place among them. Scores that are NaN stay so.

    References: Zhang, Dey & Lee (2020), Bioinformatics 36, 3439; Prive et al. (2020), Bioinformatics 36, 4449.
    """
    k, known = len(lengths), np.isfinite(XV).all(axis=1)
    scores = np.full_like(XV, np.nan)
    if not known.all():
        scores[known] = oadp_scores(XV[known], squares[known], lengths)
        return scores
    for start in range(0, len(XV), BATCH):
        part = slice(start, start + BATCH)
        l = XV[part]
        Q = np.zeros((len(l), k + 1, k + 1))
        Q[:, range(k), range(k)] = lengths
        Q[:, k, :k] = l
        Q[:, k, k] = np.sqrt(np.maximum(squares[part] - (l**2).sum(axis=1), 0.0))
        U, s, _ = np.linalg.svd(Q)
        moved = U[:, :, :k] * s[:, None, :k]
        fitted, new = moved[:, :k], moved[:, k]
        # Procrustes: the orthogonal R and the scaling that map `fitted` back to diag(lengths).
        left, strengths, right = np.linalg.svd(fitted.transpose(0, 2, 1) * lengths)
        stretch = strengths.sum(axis=1) / (fitted**2).sum(axis=(1, 2))
        scores[part] = stretch[:, None] * np.einsum("ni,nij->nj", new, left @ right)
    return scores

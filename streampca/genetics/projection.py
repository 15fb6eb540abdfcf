"""Scores of new samples from the variants that match those of a fit."""

from __future__ import annotations

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import Match

PROJECTIONS = ("oadp", "simple")
LEAST_WEIGHT = 0.01  # share of the squared loadings that the matching variants must have, in any direction
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


def placed(
    XV: Array, squares: Array, weights: Array, more: float, lengths: Array, projection: str
) -> tuple[Array, Array]:
    """Return the scores of new samples, and their distances from the space of the components.

    Distances extrapolate from the variants that match: |x - V V'x| sqrt(more). A missing call is at the mean, and
    adds nothing to the distance.

    Parameters
    ----------
    XV : (n, k) products with the matching part of the components.
    squares : (n,) squared lengths of the samples on the matching variants.
    weights : (k, k) of `check_weights`.
    more : number of fitted variants / number of those that match. Above 1 scores are by least squares.
    lengths : (k,) singular values of the fitted samples.
    projection : "simple", X V; or "oadp", which corrects its shrinkage.
    """
    XV = XV.astype(np.float64)
    simple = XV if more == 1 else np.linalg.solve(weights, XV.T).T
    outside = squares.astype(np.float64) - np.einsum("ij,ij->i", XV, simple)
    distance = np.sqrt(np.maximum(outside, 0.0) * more)
    return (simple if projection == "simple" else augmented(simple, squares * more, lengths)), distance


def augmented(XV: Array, squares: Array, lengths: Array) -> Array:
    """Return scores of new samples by online augmentation, decomposition and Procrustes (OADP).

    Each new sample, with simple scores x'V and squared length |x|^2, is added to the decomposition of the fitted ones,
    which have the singular values `lengths`. The singular value decomposition of

        [ diag(lengths)  0 ]         rows: fitted samples (in their own basis), the new one;
        [ x'V            h ]         h^2 = |x|^2 - |x'V|^2, the part of x outside the components

    gives new scores of all samples. The rotation and scaling that map those of the fitted samples back to their old
    scores also map the new one to its place among them.

    References: Zhang, Dey & Lee (2020), Bioinformatics 36, 3439; Prive et al. (2020), Bioinformatics 36, 4449.
    """
    k = len(lengths)
    scores = np.empty_like(XV)
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

"""Least squares on covariates and the first m scores, for every m at once, from second moments.

With R = L L' the moments of [covariates, scores], in this order, predictors P = L^-1 [c, z] are orthonormal. The
coefficients w of y on P do not depend on m: each m takes the first c + m of them, so that all m need one factorisation.
Errors of held-out samples follow from their second moments in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from streampca._typing import Array
from streampca.solvers.folds.dense import Trained

# A variable is collinear if those before it explain all but this share of its variance.
COLLINEAR = 1e-10


@dataclass(frozen=True)
class Path:
    """Least squares of q targets on c covariates and the first m of k scores, for m = 0 .. k.

    Attributes
    ----------
    errors : (q, k + 1) sums of squared errors of the training samples.
    held_out : (q, k + 1) the same for held-out samples; None if there are none.
    """

    errors: Array
    held_out: Array | None
    _root: Array
    _weights: Array
    _kept: Array
    _size: Array

    def coefficients(self, target: int, count: int) -> Array:
        """Return the coefficients of the first variables (covariates, then scores), for one target."""
        kept = self._kept[self._kept < count]
        r = len(kept)
        values = np.zeros(count)
        values[kept] = solve_triangular(self._root[:r, :r], self._weights[:r, target], trans="T", lower=True)
        return np.asarray(values / self._size[:count])


def least_squares_path(trained: Trained, k: int, c: int) -> Path:
    """Solve all least squares of one training set, by a Cholesky factor of the moments of [covariates, scores].

    A variable that is a combination of those before it is not in the factor; its coefficient is 0.
    """
    all_scores = len(trained.null)
    q = len(trained.scatter) - all_scores - c
    X = np.concatenate([np.arange(all_scores, all_scores + c), np.arange(k)])
    Y = np.arange(all_scores + c, all_scores + c + q)
    R = trained.scatter
    size = np.sqrt(R[X, X])
    size[size == 0] = 1.0
    root, kept = _factor(R[np.ix_(X, X)] / np.outer(size, size))
    X, scale = X[kept], size[kept, None]
    weights = solve_triangular(root, R[np.ix_(X, Y)] / scale, lower=True)
    # Number of kept variables among the covariates and the first m scores.
    within = np.searchsorted(kept, np.arange(c, c + k + 1))
    explained = np.vstack([np.zeros(q), np.cumsum(weights**2, axis=0)])[within]
    outside = None
    if trained.held_out is not None:
        M = trained.held_out
        T = solve_triangular(root, M[np.ix_(X, X)] / scale / scale.T, lower=True)
        T = solve_triangular(root, T.T, lower=True)
        t = solve_triangular(root, M[np.ix_(X, Y)] / scale, lower=True)
        # w'T w of the leading parts of w and T, each from the one before.
        lower = np.tril(T, -1)
        steps = weights * (2 * lower @ weights + np.diag(T)[:, None] * weights) - 2 * weights * t
        # Rounding may make small sums of squares negative.
        outside = np.maximum(M[Y, Y] + np.vstack([np.zeros(q), np.cumsum(steps, axis=0)])[within], 0.0).T
    return Path(np.maximum(R[Y, Y] - explained, 0.0).T, outside, root, weights, kept, size)


def _factor(R: Array) -> tuple[Array, Array]:
    """Return the Cholesky factor of the variables that are no combination of those before, and their indices."""
    p = len(R)
    L = np.zeros((p, p))
    kept = []
    for j in range(p):
        column = R[j:, j] - L[j:, :j] @ L[j, :j]
        if column[0] > COLLINEAR:
            L[j:, j] = column / np.sqrt(column[0])
            kept.append(j)
    places = np.array(kept, np.int64)
    return L[np.ix_(places, places)], places

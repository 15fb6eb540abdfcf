"""Least squares on covariates and the first m scores, for every m at once, from second moments.

With R = L L' the moments of [covariates, scores], in this order, predictors P = L^-1 [c, z] are orthonormal. The
coefficients w of y on them do not depend on m, which takes the first c + m of them: all m cost one factor. The same
holds for held-out samples, whose errors need only their second moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from streampca._typing import Array
from streampca.solvers.folds.dense import Trained

# A variable of which others before it leave no more than this share of the variance adds nothing to them.
COLLINEAR = 1e-10


@dataclass(frozen=True)
class Path:
    """Least squares of q targets on c covariates and the first m of k scores, for m = 0 .. k.

    Attributes
    ----------
    errors : (q, k + 1) sums of squared errors of the training samples.
    left_out : (q, k + 1) the same for held-out samples; None if there are none.
    """

    errors: Array
    left_out: Array | None
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
    """Solve all least squares of one training set, by Cholesky's factor of the moments of [covariates, scores].

    A variable that is a combination of those before it has no place in the factor, and the coefficient 0.
    """
    all_scores = len(trained.values)
    q = len(trained.scatter) - all_scores - c
    X = np.concatenate([np.arange(all_scores, all_scores + c), np.arange(k)])
    Y = np.arange(all_scores + c, all_scores + c + q)
    R = trained.scatter
    size = np.sqrt(R[X, X])
    size[size == 0] = 1.0
    root, kept = _factor(R[np.ix_(X, X)] / np.outer(size, size))
    X, scale = X[kept], size[kept, None]
    weights = solve_triangular(root, R[np.ix_(X, Y)] / scale, lower=True)
    # How many of the variables kept are among the covariates and the first m scores.
    within = np.searchsorted(kept, np.arange(c, c + k + 1))
    explained = np.vstack([np.zeros(q), np.cumsum(weights**2, axis=0)])[within]
    outside = None
    if trained.left_out is not None:
        M = trained.left_out
        T = solve_triangular(root, M[np.ix_(X, X)] / scale / scale.T, lower=True)
        T = solve_triangular(root, T.T, lower=True)
        t = solve_triangular(root, M[np.ix_(X, Y)] / scale, lower=True)
        # w'T w of the leading parts of w and T, each from the one before.
        lower = np.tril(T, -1)
        steps = weights * (2 * lower @ weights + np.diag(T)[:, None] * weights) - 2 * weights * t
        # Rounding may make sums of squares negative that are next to nothing.
        outside = np.maximum(M[Y, Y] + np.vstack([np.zeros(q), np.cumsum(steps, axis=0)])[within], 0.0).T
    return Path(np.maximum(R[Y, Y] - explained, 0.0).T, outside, root, weights, kept, size)


def _factor(R: Array) -> tuple[Array, Array]:
    """Return Cholesky's factor of the variables that are no combinations of those before, and which these are."""
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

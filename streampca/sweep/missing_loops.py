"""Compiled loops over missing entries, which NumPy cannot express; they release the global interpreter lock."""

from __future__ import annotations

import numpy as np

from streampca._typing import Array
from streampca.sources.compiled import compiled


@compiled
def take_missing(A: Array, by_column: bool) -> tuple[Array, Array]:  # pragma: no cover - compiled
    """Replace NaN by zero; return where the entries of each column begin, and the row of each entry.

    The loops follow the order of memory: `by_column` if A is stored by column.
    """
    n_rows, n_columns = A.shape
    starts = np.zeros(n_columns + 1, np.int64)
    for a in range(n_columns if by_column else n_rows):
        for b in range(n_rows if by_column else n_columns):
            i, j = (b, a) if by_column else (a, b)
            if np.isnan(A[i, j]):
                starts[j + 1] += 1
    for j in range(n_columns):
        starts[j + 1] += starts[j]
    rows = np.empty(starts[-1], np.int32)
    free = starts[:-1].copy()
    for a in range(n_columns if by_column else n_rows):
        for b in range(n_rows if by_column else n_columns):
            i, j = (b, a) if by_column else (a, b)
            if np.isnan(A[i, j]):
                A[i, j] = 0.0
                rows[free[j]] = i
                free[j] += 1
    return starts, rows


@compiled
def add_to_rows(starts: Array, rows: Array, full: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Add each row of full (N x p) to its listed rows of out, in the order of full, which is large."""
    for j in range(full.shape[0]):
        for q in range(starts[j], starts[j + 1]):
            i = rows[q]
            for c in range(out.shape[1]):
                out[i, c] += full[j, c]


@compiled
def add_from_rows(starts: Array, rows: Array, values: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Add to each row of out (N x p) its listed rows of values, in the order of out, which is large."""
    for j in range(out.shape[0]):
        for q in range(starts[j], starts[j + 1]):
            i = rows[q]
            for c in range(out.shape[1]):
                out[j, c] += values[i, c]


@compiled
def _factor(L: Array, size: int) -> float:  # pragma: no cover - compiled
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor; return the sum of logs of its diagonal.

    Pivots are at least 1e-15 of the diagonal entry, so that rounding cannot make them zero.
    """
    logarithms = 0.0
    for i in range(size):
        diagonal = L[i, i]
        for j in range(i):
            left = L[i, j]
            for c in range(j):
                left -= L[i, c] * L[j, c]
            L[i, j] = left / L[j, j]
        pivot = diagonal
        for c in range(i):
            pivot -= L[i, c] * L[i, c]
        L[i, i] = np.sqrt(max(pivot, 1e-15 * diagonal))
        logarithms += np.log(L[i, i])
    return logarithms


@compiled
def posteriors(
    left: Array, products: Array, common: float, mean: Array, covariance: Array, terms: Array
) -> None:  # pragma: no cover - compiled
    """Solve the E-step of each row: mean, covariance (packed) and b'<z> / common - logdet of z.

    Parameters
    ----------
    left : (t, >= (k + 1) (k + 2) / 2) sums of w~ w~' over the observed features, packed.
    products : (t, >= k) sums of w x.
    common : added to the diagonal of M.
    """
    k = mean.shape[1]
    L = np.zeros((k, k))
    inverse = np.zeros((k, k))
    for n in range(mean.shape[0]):
        place = 0
        for i in range(k):
            for j in range(i + 1):
                L[i, j] = left[n, place]
                place += 1
            L[i, i] += common
        logdet = 2 * _factor(L, k) - k * np.log(common)
        for j in range(k):
            inverse[j, j] = 1 / L[j, j]
            for i in range(j + 1, k):
                total = 0.0
                for c in range(j, i):
                    total -= L[i, c] * inverse[c, j]
                inverse[i, j] = total / L[i, i]
        # place is now that of the entries of w with the shift.
        for i in range(k):
            half = 0.0
            for j in range(i + 1):
                half += inverse[i, j] * (products[n, j] - left[n, place + j])
            L[i, 0] = half
        square = 0.0
        for j in range(k):
            square += L[j, 0] * L[j, 0]
            total = 0.0
            for i in range(j, k):
                total += inverse[i, j] * L[i, 0]
            mean[n, j] = total
        place = 0
        for i in range(k):
            for j in range(i + 1):
                total = 0.0
                for c in range(i, k):
                    total += inverse[c, i] * inverse[c, j]
                covariance[n, place] = common * total
                place += 1
        terms[n] = square / common - logdet


@compiled
def regressions(left: Array, products: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Solve the M-step of each row: S y = products, S packed in `left`, whose last entry is the number of values."""
    size = out.shape[1]
    L = np.zeros((size, size))
    for n in range(out.shape[0]):
        if left[n, -1] < 0.5:
            out[n] = 0.0
            continue
        place = 0
        for i in range(size):
            for j in range(i + 1):
                L[i, j] = left[n, place]
                place += 1
        _factor(L, size)
        for i in range(size):
            total = products[n, i]
            for j in range(i):
                total -= L[i, j] * out[n, j]
            out[n, i] = total / L[i, i]
        for i in range(size - 1, -1, -1):
            total = out[n, i]
            for j in range(i + 1, size):
                total -= L[j, i] * out[n, j]
            out[n, i] = total / L[i, i]

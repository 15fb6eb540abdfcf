"""Loops that NumPy has no form for, compiled; they run free of Python's lock."""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def add_to_rows(starts: Array, rows: Array, full: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Add each row of full (N x p) to the rows of out that are listed for it: in the order of full, which is large."""
    for j in range(full.shape[0]):
        for q in range(starts[j], starts[j + 1]):
            i = rows[q]
            for c in range(out.shape[1]):
                out[i, c] += full[j, c]


@njit(nogil=True, cache=True)
def add_from_rows(starts: Array, rows: Array, values: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Add to each row of out (N x p) the rows of values that are listed for it: in the order of out, which is large."""
    for j in range(out.shape[0]):
        for q in range(starts[j], starts[j + 1]):
            i = rows[q]
            for c in range(out.shape[1]):
                out[j, c] += values[i, c]

"""Loops that NumPy has no form for, compiled; they run free of Python's lock."""

from __future__ import annotations

from typing import Any

from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


@njit(nogil=True, cache=True)
def add_listed(starts: Array, places: Array, full: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Add to each row of out the rows of full that are listed for it."""
    for i in range(out.shape[0]):
        for q in range(starts[i], starts[i + 1]):
            j = places[q]
            for c in range(out.shape[1]):
                out[i, c] += full[j, c]


@njit(nogil=True, cache=True)
def add_to_listed(starts: Array, places: Array, rows: Array, out: Array) -> None:  # pragma: no cover - compiled
    """Add each row of rows to the rows of out that are listed for it."""
    for i in range(rows.shape[0]):
        for q in range(starts[i], starts[i + 1]):
            j = places[q]
            for c in range(out.shape[1]):
                out[j, c] += rows[i, c]

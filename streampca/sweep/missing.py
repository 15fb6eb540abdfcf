"""The missing entries of a tile as lists, and sums over them, for exact models of incomplete data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca._typing import Array


def loops() -> Any:
    """Return the compiled loops over missing entries."""
    # numba is slow to load, and complete data do without it.
    from streampca.sweep import missing_loops

    return missing_loops


@dataclass(frozen=True)
class MissingEntries:
    """Missing entries of a tile A (t x N), column by column: those of column j are in rows[starts[j] : starts[j + 1]].

    Sums run along the columns, of which there are many: the data of each column are loaded once.

    Attributes
    ----------
    starts : (N + 1,).
    rows : of each entry, ascending within a column.
    n_rows : t.
    """

    starts: Array
    rows: Array
    n_rows: int

    @classmethod
    def taken(cls, A: Array) -> MissingEntries:
        """List the NaN of a tile, and replace them by zero."""
        starts, rows = loops().take_missing(A, abs(A.strides[0]) < abs(A.strides[1]))
        return cls(starts, rows, len(A))

    @property
    def columns(self) -> Array:
        """Column of each entry."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @property
    def of_each_row(self) -> Array:
        """Number of missing entries of each row."""
        return np.bincount(self.rows, minlength=self.n_rows)

    def sums_of_rows(self, full: Array) -> Array:
        """Return, for each row of the tile, the sum of the rows of `full` (N x p) at its missing entries."""
        total = np.zeros((self.n_rows, full.shape[1]))
        loops().add_to_rows(self.starts, self.rows, full, total)
        return total

    def add_to_columns(self, rows: Array, total: Array) -> None:
        """Add each row of `rows` (t x p) to those of `total` (N x p) where it has missing entries."""
        loops().add_from_rows(self.starts, self.rows, rows, total)

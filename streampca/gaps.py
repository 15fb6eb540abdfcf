"""The missing entries of a tile, as lists, and sums over them: what exact models of incomplete data are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Gaps:
    """Missing entries of a tile A (t x N), row by row: those of row i are in columns places[starts[i] : starts[i + 1]].

    Attributes
    ----------
    starts : (t + 1,).
    places : columns.
    """

    starts: Array
    places: Array

    @classmethod
    def where(cls, absent: Array) -> Gaps:
        """List the entries of a mask (t x N)."""
        rows, places = np.nonzero(absent)
        return cls(np.append(0, np.cumsum(np.bincount(rows, minlength=len(absent)))), places)

    @property
    def counts(self) -> Array:
        """Missing entries of each row."""
        return np.diff(self.starts)

    def of_rows(self, full: Array) -> Array:
        """Return, for each row of the tile, the sum of the rows of `full` (N x p) at its missing entries."""
        from streampca.compiled import add_listed

        total = np.zeros((len(self.starts) - 1, full.shape[1]))
        add_listed(self.starts, self.places, full, total)
        return total

    def to_columns(self, rows: Array, total: Array) -> None:
        """Add each row of `rows` (t x p) to those of `total` (N x p) where it has missing entries."""
        from streampca.compiled import add_to_listed

        add_to_listed(self.starts, self.places, rows, total)

"""The cost of a solver, from shapes alone: memory, sweeps and seconds. Each solver has a `cost` that returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.solvers.base import Wanted
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import WRITE_COPIES, Budget, Needs
from streampca.sweep.statistics import Statistic

# A rough model of one core, to compare solvers; only the ratios matter.
READ_RATE = 6e8  # bytes/s, decoding included
PRODUCT_RATE = 6e10  # flop/s of a thin product in float32
SCATTER_RATE = 7.5e10  # multiply-adds/s of A'A in float32, counting N^2 for each row
EIGH_RATE = 8e9  # flop/s of the reduction to tridiagonal form
ASSUMED_COMPONENTS = 16  # number of components for a share of the variance


@dataclass(frozen=True)
class Problem:
    """Components to compute within a budget.

    Attributes
    ----------
    wanted : number of components, or share of the variance; tolerance.
    axis : that the matrix is cut along; the choice of a solver tries each.
    keep_scatter : whether A'A is kept, to merge fits.
    n_folds, n_others : of a cross-validation: number of folds; number of covariates and targets.
    fills : whether missing values may be replaced by the mean.
    """

    source: Source
    wanted: Wanted
    seed: Any
    budget: Budget
    axis: int = 0
    keep_scatter: bool = False
    n_folds: int = 0
    n_others: int = 0
    fills: bool = False

    @property
    def k(self) -> int | None:
        """Number of components; None for a share of the variance."""
        return self.wanted.n_components

    @property
    def assumed_k(self) -> int:
        """Number of components; an assumption for a share of the variance."""
        return self.k or ASSUMED_COMPONENTS

    @property
    def n_full(self) -> int:
        """Length of the rows of A, N."""
        return self.source.shape[1 - self.axis]

    @property
    def n_block(self) -> int:
        """Rows of A."""
        return self.source.shape[self.axis]

    @property
    def read_seconds(self) -> float:
        """Seconds of reading all data once."""
        return self.source.n_bytes / READ_RATE

    @property
    def tables_bytes(self) -> int:
        """Bytes of covariates and targets, given and centred, and of the folds of the samples."""
        return 8 * self.source.shape[0] * (3 * self.n_others + 2)

    @property
    def score_bytes(self) -> int:
        """Bytes of the scores of one row, as a task computes and writes them, if rows are samples."""
        return (2 + WRITE_COPIES) * 8 * self.assumed_k if self.axis == 0 else 0

    def tile_bytes(self, statistic: Statistic, width: int) -> int:
        """Bytes of a float64 tile, of its copy in float32, and of the temporary of its product, N x width."""
        N = self.n_full
        copies = 8 if tile_dtype(self.source.dtype) == np.float64 else 12
        return N * (copies * statistic.tile_length(N, 8) + 8 * min(width, N))

    def components_bytes(self, more: int = 0) -> int:
        """Bytes of the sweep for k + more components (d x k) in float64, as a list and joined, and of moments."""
        return self.source.shape[1] * (2 * 8 * (self.assumed_k + more + 1) + 64) if self.axis == 1 else 0

    def after_bytes(self, more: int = 0) -> int:
        """Bytes of k + more components as rows, as they are orthonormalised and written."""
        n, d = self.source.shape
        return (self.assumed_k + more) * (4 * 8 * d + 3 * 8 * n) + 64 * d if self.axis == 1 else 0


@dataclass(frozen=True)
class Cost:
    """A solver with its parameters, the memory it needs, its sweeps, its core-seconds, and the reason to choose it.

    With `on_request` the solver is not chosen automatically.
    """

    solver: Any
    name: str
    needs: Needs
    sweeps: int
    seconds: float
    reason: str
    on_request: bool = False


def block_size(k: int | None) -> int:
    """Return the columns of a Krylov block: a few more than k, so that the last components converge with the others.

    A multiple of 8, for which the BLAS is faster.
    """
    return 32 if k is None else -(-(k + 4) // 8) * 8

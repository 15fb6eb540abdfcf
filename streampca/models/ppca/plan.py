"""Sweeps of latent models: partitions and memory, planned before any data are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca.errors import InputError
from streampca.progress import Progress
from streampca.solvers.em.loop import MEMORY
from streampca.solvers.em.statistics import EStep
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.memory import NUMBA_BYTES, WRITE_COPIES, Budget, Needs, SweepPlan, plan_sweeps
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Statistic
from streampca.sweep.sweep import Sweeps, active_client


def latent_sweeps(
    source: Source, k: int, incomplete: bool, scaling: Scaling, dtype: np.dtype[Any], budget: Budget, progress: Progress
) -> Sweeps:
    """Return sweeps for EM and for the posterior, over a source whose features are all used."""
    planned = plan_em(source, k, incomplete, dtype, budget)
    return planned.over(source, "mean" if incomplete else "error", None, scaling, progress)


def plan_em(source: Source, k: int, incomplete: bool, dtype: np.dtype[Any], budget: Budget) -> SweepPlan:
    """Plan sweeps of EM, cut along the axis that needs less memory."""
    needs = [em_needs(source, axis, k, incomplete, dtype.itemsize) for axis in source.cut_axes]
    what = f"EM of {k} components on {' x '.join(map(str, source.shape))}"
    return plan_sweeps(source, needs, budget, what, sweeps=2, dtype=dtype)


def em_needs(source: Source, axis: int, k: int, incomplete: bool, itemsize: int) -> Needs:
    """Return the memory of EM with k components, cut along an axis.

    Parameters
    ----------
    incomplete : whether values may be missing.
    """
    n, d = source.shape
    N = source.shape[1 - axis]
    # Products have a multiple of 8 columns; missing values add the lower triangles of (k + 1) x (k + 1) matrices.
    columns = -(-(k + 1) // 8) * 8
    sums = columns + ((k + 1) * (k + 2) // 2 + 1 if incomplete else 0) + 2
    length = EStep.rows_of(k, Statistic().tile_length(N, itemsize))
    # The other side's rows with their products, the sums taken to the driver; Anderson's differences.
    driver = N * (itemsize * sums + 16 * sums + 8 * (k + 1) * (MEMORY + 5))
    # Components and weights; scores, posteriors and their expansion.
    driver += 8 * d * (k + 1) * 6
    if axis == 1:
        driver += 8 * n * (4 * k + 3 * k * (k + 1) // 2 + (3 * k * k if incomplete else 0))
    return Needs(
        axis,
        # A tile, its squares, the temporary of a product; the k x k matrices of its rows; posteriors of its samples.
        tile=itemsize * N * (2 * length + columns) + 8 * length * 6 * (k + 1) ** 2,
        row=8 * (2 * k + 2) * (2 + WRITE_COPIES) if axis == 0 else 0,
        partial=8 * N * sums,
        driver=driver,
        libraries=NUMBA_BYTES if incomplete else 0,
    )


def imputing_sweeps(source: Source, k: int, memory: Any, progress: Progress) -> tuple[Sweeps, int]:
    """Plan a sweep over the values as stored, and the length of its tiles, a divisor of the partitions.

    Genotypes are cut along variants, other data along samples. The posterior means of all samples are in memory.
    """
    axis, dtype = source.cut_axes[0], tile_dtype(source.dtype)
    N, cut = source.shape[1 - axis], source.cut(axis, 0)
    wanted, slab = Statistic().tile_length(N, dtype.itemsize), cut.slab_length
    length = next((part for part in range(min(wanted, slab), wanted // 8, -1) if slab % part == 0), slab)
    regular = all(start % length == 0 for start, _ in cut.partitions)
    if not regular and active_client() is not None:
        raise InputError(f"{source.name}: blocks of uneven length cannot be imputed on a cluster; rechunk the array")
    needs = Needs(
        axis, (3 + WRITE_COPIES) * dtype.itemsize * N * length, driver=8 * k * sum(source.shape), libraries=NUMBA_BYTES
    )
    # Where partitions share a chunk of the output, one of them writes at a time.
    planned = plan_sweeps(source, needs, Budget.of(memory), "imputing", threads=None if regular else 1)
    return planned.over(source, "mean", None, Scaling(np.zeros(source.shape[1])), progress), length

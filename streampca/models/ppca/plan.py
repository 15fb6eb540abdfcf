"""Sweeps of latent models: how they are cut, and what memory they take, before anything is read."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from streampca.errors import InputError
from streampca.progress import Progress
from streampca.solvers.em.loop import MEMORY
from streampca.solvers.em.statistics import Step
from streampca.sources import Source
from streampca.sources.wrappers import Cached
from streampca.sweep.matrix import Matrix, tile_dtype
from streampca.sweep.memory import (
    Cut,
    Footprint,
    cut,
    footprint,
    memory_limit,
    process_bytes,
    thread_count,
    threads_that_fit,
)
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import Statistic
from streampca.sweep.sweep import Sweeps, active_client

# What numba and the compiled loops take once they are loaded.
COMPILED_BYTES = 150 << 20


def latent_sweeps(
    source: Source, k: int, gaps: bool, scaling: Scaling, dtype: np.dtype[Any], memory: Any, progress: Progress,
    process: int | None = None,
) -> Sweeps:  # fmt: skip
    """Return sweeps for EM and what follows it, over a source whose features are all used.

    Parameters
    ----------
    process : bytes of the process before the fit began, whose arrays are in the plan; as it is now, unless given.
    """
    if gaps:
        load_compiled()
    planned, need, threads = plan_em(source, k, gaps, dtype.itemsize, memory, process)
    spare = memory_limit(memory) - need.peak(threads)
    if source.costly and active_client() is None and spare > 0:
        source = Cached(source, min(spare * 3 // 4, source.n_bytes))
    matrix = Matrix(
        source, planned.axis, dtype, "mean" if gaps else "error", None, scaling, planned.partitions, planned.slab_length
    )
    return Sweeps(matrix, threads, progress)


def plan_em(
    source: Source, k: int, gaps: bool, itemsize: int, memory: Any, process: int | None = None
) -> tuple[Cut, Footprint, int]:
    """Plan sweeps of EM: cut along the axis that needs less memory, for slabs and for sums."""
    needs = [_need(source, axis, k, gaps, itemsize, process or process_before(gaps)) for axis in source.cut_axes]
    planned, need = min(needs, key=lambda pair: pair[1].peak(1))
    what = f"EM of {k} components on {' x '.join(map(str, source.shape))}"
    return (
        planned,
        need,
        threads_that_fit(need, memory_limit(memory), min(thread_count(), len(planned.partitions)), what),
    )


def process_before(gaps: bool) -> int:
    """Bytes of the process now, with the loops that gaps need, loaded or not."""
    return process_bytes() + (0 if not gaps or "streampca.sweep.missing_loops" in sys.modules else COMPILED_BYTES)


def _need(source: Source, axis: int, k: int, gaps: bool, itemsize: int, process: int) -> tuple[Cut, Footprint]:
    """Return the cut along an axis, and the memory that EM then takes."""
    n, d = source.shape
    N = source.shape[1 - axis]
    width = (k + 1) * (k + 2) // 2 + 1
    # Products have a multiple of 8 columns.
    columns = -(-(k + 1) // 8) * 8
    sums = columns + (width if gaps else 0) + 2
    partial = 8 * N * sums
    planned = cut(source, axis, partial)
    length = Step.rows_of(k, Statistic().tile_length(N, itemsize))
    # A tile, its squares, the temporary of a product; the k x k matrices of its rows; and what is found of each sample.
    rows = max(stop - start for start, stop in planned.partitions)
    tile = itemsize * N * (2 * length + columns) + 8 * length * 6 * (k + 1) ** 2
    tile += 8 * rows * (2 * k + 2) * 2 if axis == 0 else 0
    # The other side's rows with their products, the sums taken to the driver; Anderson's differences.
    side = N * (itemsize * sums + 16 * sums + 8 * (k + 1) * (MEMORY + 5))
    # Components, weights and what is made of them; scores, posteriors and their expansion.
    found = 8 * d * (k + 1) * 6 + (
        8 * n * (4 * k + 3 * k * (k + 1) // 2 + (3 * k * k if gaps else 0)) if axis == 1 else 0
    )
    return planned, footprint(source, planned, tile, partial, side + found, process)


def load_compiled() -> None:
    """Load the compiled loops now, not in the first sweep: plans count what the process holds already."""
    from streampca.sweep.missing_loops import take_gaps

    take_gaps(np.zeros((1, 1)), False)


def imputing_sweeps(source: Source, k: int, memory: Any, progress: Progress) -> tuple[Sweeps, int]:
    """Plan a sweep over the values as they are, and the length of its tiles, of which partitions hold a whole number.

    Genotypes are cut along variants, all else along samples. The posterior means of all samples are in memory.
    """
    axis = source.cut_axes[0]
    planned, dtype = cut(source, axis, 0), tile_dtype(source.dtype)
    wanted = Statistic().tile_length(source.shape[1 - axis], dtype.itemsize)
    slab = planned.slab_length
    length = next((part for part in range(min(wanted, slab), wanted // 8, -1) if slab % part == 0), slab)
    regular = all(start % length == 0 for start, _ in planned.partitions)
    tile = 3 * dtype.itemsize * source.shape[1 - axis] * length
    load_compiled()
    need = footprint(source, planned, tile, 0, 8 * k * sum(source.shape), process_bytes())
    if not regular and active_client() is not None:
        raise InputError(
            f"{source.name}: has blocks of uneven length, which cannot be imputed on a cluster; rechunk it"
        )
    # Where partitions share a chunk of what is written, one of them writes at a time.
    most = min(thread_count(), len(planned.partitions)) if regular else 1
    threads = threads_that_fit(need, memory_limit(memory), most, "imputing")
    scaling = Scaling(np.zeros(source.shape[1]))
    matrix = Matrix(source, axis, dtype, "mean", None, scaling, planned.partitions, planned.slab_length)
    return Sweeps(matrix, threads, progress), length

"""Memory of sweeps: declared where it is allocated, added up here, compared with the limit before data are read.

    peak = process + max(driver + threads (task + partial) + waiting partial, after)

    process   baseline of the command, growth of the interpreter, libraries that the work loads
    driver    arrays of the solver or model in the process that plans
    task      one read, one tile with its temporaries
    partial   what a task returns; a few wait to be merged
    after     arrays of the driver once the sweeps are done

`plan_sweeps` chooses partitions, threads and how much decoded data to keep for later sweeps. A plan is a function of
the source's shape, chunks and type, the declared needs and the budget, never of the memory that the process uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
import numpy as np
from dask.system import CPU_COUNT
from dask.utils import parse_bytes

from streampca.errors import InputError, MemoryLimitError
from streampca.progress import Progress, silent
from streampca.progress import show_bytes as show_bytes
from streampca.sources import Source
from streampca.sources.base import Cut as Cut
from streampca.sources.wrappers import Cached
from streampca.sweep.matrix import Matrix, tile_dtype
from streampca.sweep.scaling import Scaling, divisor_of
from streampca.sweep.sweep import Sweeps
from streampca.validation import available_memory

# Packing buffers of the BLAS, a thread's stack and small temporaries.
TASK_RESERVE = 12 << 20
# Writing the result, and growth of the interpreter.
PROCESS_RESERVE = 40 << 20
# Resident size of a shell command before it reads data: the interpreter with NumPy, SciPy, Dask and Zarr, and
# `distributed`, whether the engine needs it or not, so that all engines have the same plan.
COMMAND_BASELINE = 112 << 20
# The same for a command that opens a result: with xarray and pandas.
RESULT_BASELINE = 160 << 20
# Copies of a block that Zarr makes to encode and compress it.
WRITE_COPIES = 3
# Matplotlib and its fonts.
DRAWING_BYTES = 100 << 20
# Copies of the numbers of a result, as float64, that a table or a page takes; and bytes of a label as text.
VIEW_COPIES = 4
TEXT_BYTES = 200
# The compiled loops over missing values, with numba, when they are compiled for the first time.
NUMBA_BYTES = 150 << 20


def memory_limit(memory: str | int | float | None) -> int:
    """Return the limit in bytes: as given ("600MB", a number), or half of the available memory."""
    if memory is None:
        return available_memory() // 2
    try:
        limit = int(parse_bytes(memory))
    except (ValueError, AttributeError, TypeError, OverflowError):
        limit = 0
    if limit <= 0:
        raise InputError(f"memory_limit must be an amount such as '600MB', or a number of bytes, got {memory!r}")
    return limit


def thread_count() -> int:
    """Return the number of threads: as Dask is configured, or the cores that this process may use."""
    return int(dask.config.get("num_workers", None) or CPU_COUNT)


@dataclass(frozen=True)
class Budget:
    """Memory and threads that a plan may use.

    Attributes
    ----------
    limit : bytes: of a shell command in all; in Python, of what streampca adds; with several processes, of each.
    baseline : bytes of the limit that a shell command takes before it reads data; 0 in Python.
    threads : largest number of tasks at a time.
    """

    limit: int
    baseline: int = 0
    threads: int = field(default_factory=thread_count)

    @classmethod
    def of(cls, memory: Budget | str | int | float | None, baseline: int = 0) -> Budget:
        """Return the budget of a memory limit as users write it; a budget is returned as it is."""
        return memory if isinstance(memory, Budget) else cls(memory_limit(memory), baseline)


@dataclass(frozen=True)
class Needs:
    """Bytes that sweeps along one axis allocate, in addition to reading.

    Attributes
    ----------
    axis : that the matrix is cut along.
    tile : of a task: its tile and temporaries.
    row : of a task for each row of its partition.
    partial : returned by a task.
    driver : arrays of the driver during the sweeps.
    after : arrays of the driver after the sweeps, when the arrays of the solver are freed.
    held : from the beginning to the end, such as tables of the samples.
    libraries : of libraries loaded for this work.
    widening : size of a tile relative to the values read; partitions are shorter by this factor.
    """

    axis: int
    tile: int
    row: int = 0
    partial: int = 0
    driver: int = 0
    after: int = 0
    held: int = 0
    libraries: int = 0
    widening: float = 1.0


@dataclass(frozen=True)
class Footprint:
    """Bytes at the peak: process, driver, each task, each partial; and the number of partials waiting to be merged."""

    process: int
    driver: int
    task: int
    partial: int
    waiting: int
    after: int = 0

    def peak(self, threads: int) -> int:
        """Return the resident size with this many tasks at a time."""
        during = self.driver + threads * (self.task + self.partial) + self.waiting * self.partial
        return self.process + max(during, self.after)


def footprint(source: Source, needs: Needs, budget: Budget) -> tuple[Cut, Footprint]:
    """Cut the source, and add up the memory of its sweeps."""
    cut = source.cut(needs.axis, needs.partial, needs.widening)
    longest = max(stop - start for start, stop in cut.partitions)
    libraries = max(needs.libraries, source.library_bytes)
    return cut, Footprint(
        process=budget.baseline + PROCESS_RESERVE + libraries + needs.held,
        driver=needs.driver,
        task=source.reading_bytes(cut) + needs.tile + needs.row * longest + TASK_RESERVE,
        partial=needs.partial,
        waiting=min(len(cut.partitions), math.ceil(math.log2(max(2, len(cut.partitions)))) + 1),
        after=needs.after,
    )


@dataclass(frozen=True)
class SweepPlan:
    """How sweeps are done: partitions, tasks at a time, and memory.

    Attributes
    ----------
    cut, threads : partitions, and tasks at a time.
    need : parts of the peak.
    peak_bytes, limit_bytes : resident size expected and allowed.
    resident_bytes : of these, decoded data kept for later sweeps.
    dtype : of the tiles.
    """

    cut: Cut
    threads: int
    need: Footprint
    peak_bytes: int
    limit_bytes: int
    resident_bytes: int
    dtype: np.dtype[Any]

    def matrix(self, source: Source, missing: str, scale: str | None = None, scaling: Scaling | None = None) -> Matrix:
        """Return the source cut as planned.

        Parameters
        ----------
        scaling : centre and scale if all features are used; None to compute them, and to apply the filter.
        """
        return Matrix(
            Cached(source, self.resident_bytes) if self.resident_bytes else source, self.cut.axis, self.dtype, missing,
            scale, scaling, self.cut.partitions, self.cut.slab_length,
            filter=source.filter if scaling is None else None, divisor=divisor_of(scale, source.features),
        )  # fmt: skip

    def over(
        self, source: Source, missing: str, scale: str | None = None, scaling: Scaling | None = None,
        progress: Progress = silent,
    ) -> Sweeps:  # fmt: skip
        """Return sweeps over the source cut as planned; parameters are those of `matrix`."""
        return Sweeps(self.matrix(source, missing, scale, scaling), self.threads, progress)


def plan_sweeps(
    source: Source, needs: Needs | Sequence[Needs], budget: Budget, what: str, *, sweeps: int = 1,
    threads: int | None = None, dtype: np.dtype[Any] | None = None,
) -> SweepPlan:  # fmt: skip
    """Plan sweeps within a budget; raise `MemoryLimitError` with the memory needed if they do not fit.

    Parameters
    ----------
    needs : of the work; of several, those with the smallest peak are planned.
    what : the work, for the message.
    sweeps : reads of all data. If there are several, decoded data are kept in the remaining memory.
    threads : largest number of tasks at a time, if fewer than the budget allows.
    dtype : of the tiles; that of the source by default.
    """
    each = [footprint(source, one, budget) for one in ([needs] if isinstance(needs, Needs) else needs)]
    cut, need = min(each, key=lambda one: one[1].peak(1))
    count = threads_that_fit(need, budget.limit, min(threads or budget.threads, len(cut.partitions)), what)
    peak = need.peak(count)
    kept = min((budget.limit - peak) * 3 // 4, source.n_bytes) if sweeps > 1 and source.costly else 0
    return SweepPlan(cut, count, need, peak + kept, budget.limit, kept, dtype or tile_dtype(source.dtype))


def plan_stages(*stages: Callable[[], Any]) -> list[Any]:
    """Make the plans of all stages of a run; if some do not fit, raise the error of the one that needs the most."""
    plans, errors = [], []
    for stage in stages:
        try:
            plans.append(stage())
        except MemoryLimitError as error:
            errors.append(error)
    if errors:
        raise max(errors, key=lambda error: error.needed_bytes)
    return plans


def check_fits(needed: int, budget: Budget, what: str, libraries: int = 0) -> None:
    """Raise `MemoryLimitError` if work that needs this many bytes, without sweeps, does not fit the budget."""
    process = budget.baseline + PROCESS_RESERVE + libraries
    threads_that_fit(Footprint(process, needed, 0, 0, 0), budget.limit, 1, what)


def threads_that_fit(need: Footprint, limit: int, most: int, what: str) -> int:
    """Return how many tasks, up to `most`, fit at a time; raise `MemoryLimitError` if not even one does."""
    if need.peak(1) > limit:
        raise MemoryLimitError(
            f"{what} needs at least {math.ceil(need.peak(1) / 1e6)} MB of memory, {show_bytes(limit)} is allowed: "
            f"use memory_limit='{math.ceil(need.peak(1) / 1e7) * 10}MB' or more",
            need.peak(1),
        )
    threads = most
    while need.peak(threads) > limit:
        threads -= 1
    return threads

"""Bytes and passes, from shapes alone, before anything is read.

A run holds, at its peak: the process as it is, the solver's arrays in the driver, one task's buffers and partial per
thread, and the partials that wait to be merged. What the limit leaves beyond that keeps decoded data in memory, so that
later sweeps need not read them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import dask
import psutil
from dask.system import CPU_COUNT
from dask.utils import parse_bytes

from streampca.errors import InputError, MemoryLimitError
from streampca.sources import Source
from streampca.sources.base import Cut as Cut
from streampca.validation import available_memory

# Packing buffers of the BLAS, a thread's stack and small temporaries.
TASK_RESERVE = 12 << 20
# What writing the result and the interpreter's own growth take.
PROCESS_RESERVE = 40 << 20
# Dask's configuration may hold the size of the process, so that plans of one run are the same whenever they are made.
PROCESS_KEY = "streampca.process-bytes"


def memory_limit(memory: str | int | float | None) -> int:
    """Return the limit in bytes: as given ("600MB", a number), or half of what is available now."""
    if memory is None:
        return available_memory() // 2
    try:
        limit = int(parse_bytes(memory))
    except (ValueError, AttributeError, TypeError, OverflowError) as error:
        raise InputError(f"memory={memory!r} is not an amount; write it as '600MB' or '2GB', or give bytes") from error
    if limit <= 0:
        raise InputError(f"memory={memory!r} is not a positive amount; write it as '600MB' or '2GB', or give bytes")
    return limit


def show_bytes(n_bytes: float) -> str:
    """Return an amount as people write it: 1.6 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.3g} {unit}"
    return f"{n_bytes:.0f} B"


def cut(source: Source, axis: int, partial_bytes: int, widening: float = 1.0) -> Cut:
    """Return the partitions of a source along an axis: see `Source.cut`."""
    return source.cut(axis, partial_bytes, widening)


@dataclass(frozen=True)
class Footprint:
    """Bytes at the peak: of the process, of the driver's arrays, of each task, of each partial and how many wait.

    `after` is what the driver holds when sweeps and solver are done, and their arrays are gone.
    """

    process: int
    driver: int
    task: int
    partial: int
    waiting: int
    after: int = 0

    def peak(self, threads: int) -> int:
        """Resident size with that many tasks at a time."""
        during = self.driver + threads * (self.task + self.partial) + self.waiting * self.partial
        return self.process + max(during, self.after)


def footprint(
    source: Source, plan: Cut, tile_bytes: int, partial_bytes: int, driver_bytes: int, process: int
) -> Footprint:
    """Add up what a sweep holds."""
    waiting = min(len(plan.partitions), math.ceil(math.log2(max(2, len(plan.partitions)))) + 1)
    task = source.reading_bytes(plan) + tile_bytes + TASK_RESERVE
    return Footprint(process, driver_bytes, task, partial_bytes, waiting)


def threads_that_fit(need: Footprint, limit: int, wanted: int, what: str) -> int:
    """Return how many tasks fit at a time; refuse if not even one does."""
    if need.peak(1) > limit:
        raise MemoryLimitError(
            f"{what} needs at least {math.ceil(need.peak(1) / 1e6)} MB of memory, {show_bytes(limit)} is allowed: "
            f"raise the limit to {math.ceil(need.peak(1) / 1e7) * 10}MB or more"
        )
    threads = wanted
    while need.peak(threads) > limit:
        threads -= 1
    return threads


def process_bytes() -> int:
    """Resident size now, and what it will grow by beside the arrays that are planned; or as Dask is configured."""
    fixed = dask.config.get(PROCESS_KEY, None)
    return int(fixed) if fixed else int(psutil.Process().memory_info().rss) + PROCESS_RESERVE


def thread_count() -> int:
    """Threads to use: as Dask is configured, or the cores that this process may use."""
    return int(dask.config.get("num_workers", None) or CPU_COUNT)

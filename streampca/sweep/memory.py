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
from streampca.sources.arrays import DaskSource
from streampca.sources.genotypes import GenotypeSource
from streampca.validation import available_memory

# Reads smaller than this are joined; partitions smaller than this are not worth a task.
SLAB_BYTES = 8 << 20
PARTITION_BYTES = 16 << 20
MAX_PARTITIONS = 512
# A large chunk of rows that are much work is read in so many parts: each decodes all of it.
PARTS_OF_CHUNK = 4
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


@dataclass(frozen=True)
class Cut:
    """How the matrix is cut: which axis, the ranges of the partitions, the length of one read."""

    axis: int
    partitions: tuple[tuple[int, int], ...]
    slab_length: int


def cut(source: Source, axis: int, partial_bytes: int, widening: float = 1.0) -> Cut:
    """Plan the partitions: whole chunks, much larger than the partial that each returns, and not too many.

    Where a tile is so many times wider than what is read (`widening`), partitions are that much shorter, and may be
    part of a chunk.
    """
    n_block, n_full = source.shape[axis], source.shape[1 - axis]
    if isinstance(source, DaskSource):
        ranges = _blocks_of(source, axis, n_full)
        return Cut(axis, ranges, max(b - a for a, b in ranges))
    row_bytes = n_full * source.item_bytes
    chunk = source.chunks[axis]
    slab_length = chunk * max(1, int(SLAB_BYTES // (chunk * row_bytes * widening)))
    wanted = max(max(PARTITION_BYTES, 4 * partial_bytes) / widening, n_block * row_bytes // MAX_PARTITIONS)
    if widening > 1 and chunk * row_bytes > PARTS_OF_CHUNK * wanted:
        slab_length = math.ceil(chunk / PARTS_OF_CHUNK)
    if isinstance(source, GenotypeSource):
        # A packed byte makes sixteen of a tile: much work for little to read.
        total = n_block * row_bytes
        slab_length = source.slab_length
        wanted = max(PARTITION_BYTES / 16, min(max(PARTITION_BYTES / 4, 2 * partial_bytes), total / 16))
        wanted = max(wanted, total / MAX_PARTITIONS)
        slab_length = min(slab_length, chunk * math.ceil(wanted / (chunk * row_bytes)))
    length = slab_length * max(1, math.ceil(wanted / (slab_length * row_bytes)))
    return Cut(axis, tuple((i, min(i + length, n_block)) for i in range(0, n_block, length)), min(slab_length, n_block))


def _blocks_of(source: DaskSource, axis: int, n_full: int) -> tuple[tuple[int, int], ...]:
    """Return the ranges of a Dask array's blocks; where they are very many, small ones are joined."""
    lengths = [length for length in source.array.chunks[axis] if length]
    least = PARTITION_BYTES // max(1, int(n_full * source.item_bytes)) if len(lengths) > MAX_PARTITIONS else 0
    ranges, start, stop = [], 0, 0
    for length in lengths:
        if stop > start and stop - start + length > least:
            ranges.append((start, stop))
            start = stop
        stop += length
    return (*ranges, (start, stop))


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
    row_bytes = source.shape[1 - plan.axis] * source.item_bytes
    slab = int(plan.slab_length * row_bytes)
    chunk = math.prod(source.chunks) * source.item_bytes
    many_chunks = slab > chunk
    reading = slab + int(source.overhead * chunk) + (int(chunk) if many_chunks and source.overhead else 0)
    if slab < chunk and source.overhead:
        # Part of a chunk is taken from all of it.
        reading += int(chunk)
    if isinstance(source, DaskSource):
        reading = 2 * slab  # the blocks, and the same joined
    waiting = min(len(plan.partitions), math.ceil(math.log2(max(2, len(plan.partitions)))) + 1)
    return Footprint(process, driver_bytes, reading + tile_bytes + TASK_RESERVE, partial_bytes, waiting)


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

"""The sweep: one read of all the data, reduced to something small.

A sweep is a Dask graph of one task a partition and a binary tree of merges. The plan of partitions and the tree are
fixed by the matrix, never by the workers, and the BLAS has one thread in each task: any engine gives the same bits.
It runs on the active `distributed.Client` if there is one, else on threads.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from dask import threaded
from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed
from threadpoolctl import ThreadpoolController

from streampca.accumulators import Moments, NoStatistic, Statistic, between_means, combine_moments
from streampca.errors import MissingValuesError
from streampca.matrix import Defects, Matrix
from streampca.progress import Progress, Step, silent
from streampca.sources.arrays import BlockSource, DaskSource


class _OneBlasThread:
    """Holds the BLAS at one thread while anyone is inside; the last to leave restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = ThreadpoolController().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.__exit__(None, None, None)

    def __reduce__(self) -> str:
        return "one_blas_thread"


one_blas_thread = _OneBlasThread()
# Tiles whose means wait to be merged: one merge costs as much as a short tile, and each holds five numbers a feature.
MERGE_EVERY = 16
# A thinned sweep has so many partitions, or more: enough to share among threads, few enough to merge quickly.
THIN_PARTITIONS = 16


@dataclass(frozen=True)
class Partial:
    """What one partition, or several merged, came to."""

    value: Any
    moments: tuple[Moments, ...]
    defects: Defects
    n_bytes: int
    missing: Any = 0


def run_partition(
    matrix: Matrix, statistic: Statistic, start: int, stop: int, check: bool, block: Any = None
) -> Partial:
    """Reduce one partition: its own source, slab by slab, tile by tile."""
    if block is not None:
        matrix = replace(matrix, source=BlockSource(block, matrix.source.shape, matrix.axis, start))
    length = statistic.tile_length(matrix.n_full, matrix.dtype.itemsize)
    value = statistic.zero(matrix.n_full)
    moments: list[Moments] = []
    defects = Defects()
    n_bytes = 0
    missing: Any = 0
    # Values too large for the type become infinite here; the caller sees it in the sums and says so.
    with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
        for tile in matrix.tiles(start, stop, length, check, statistic.wants_gaps):
            statistic.update(value, tile.A, tile.start, *([tile.gaps] if statistic.wants_gaps else []))
            n_bytes += tile.n_bytes
            if tile.defects is not None:
                defects += tile.defects
            if tile.missing is not None:
                missing = missing + tile.missing
            if tile.moments is not None:
                moments.append(tile.moments)
            if matrix.merges_means and len(moments) == MERGE_EVERY:
                moments = [_merge_means(statistic, value, moments)]
        if matrix.merges_means:
            moments = [_merge_means(statistic, value, moments)]
        value = statistic.finish(value, start)
    return Partial(value, tuple(moments), defects, n_bytes, missing)


def combine(statistic: Statistic, merges_means: bool, a: Partial, b: Partial) -> Partial:
    """Merge two partials, a before b."""
    value = statistic.combine(a.value, b.value)
    moments = a.moments + b.moments
    if merges_means and moments:
        with one_blas_thread:
            moments = (_merge_means(statistic, value, list(moments)),)
    return Partial(value, moments, a.defects + b.defects, a.n_bytes + b.n_bytes, a.missing + b.missing)


def _merge_means(statistic: Statistic, value: Any, parts: list[Moments]) -> Moments:
    """Merge moments, and add to value, the sum of parts taken about their own means, the terms between these."""
    merged, rows = parts[0], []
    for part in parts[1:]:
        rows.append(between_means(merged, part))
        merged = combine_moments(merged, part)
    if rows:
        statistic.update(value, np.concatenate(rows), 0)
    return merged


@dataclass
class Sweeps:
    """Runs sweeps over one matrix and counts them.

    Parameters
    ----------
    matrix : replaced by the caller when its scaling becomes known.
    threads : tasks at a time, when no `distributed.Client` is active.
    progress : called with a `Step` when a sweep starts and when a partition is done.
    note : what the progress shows beside the bar, set by the solver.
    stage : what the progress calls these sweeps, if not what each is for.
    seconds, bytes_read : of the sweeps so far; warm_seconds, of a warm start before them.
    sample_missing : missing calls of each sample, once a sweep over genotypes has counted them.
    """

    matrix: Matrix
    threads: int = 1
    progress: Progress = silent
    note: str = ""
    stage: str = ""
    seconds: list[float] = field(default_factory=list)
    warm_seconds: float = 0.0
    bytes_read: int = 0
    sample_missing: Any = None
    _pools: dict[int, ThreadPoolExecutor] = field(default_factory=dict)

    @property
    def n_sweeps(self) -> int:
        """Reads of all the data so far."""
        return len(self.seconds)

    def thinned(self, step: int) -> Sweeps:
        """Return sweeps over one row in `step`: whole partitions if these are many, else the beginning of each."""
        stride = min(step, max(1, len(self.matrix.partitions) // THIN_PARTITIONS))
        chosen = self.matrix.partitions[stride // 2 :: stride]
        parts = tuple((start, start + -(-(stop - start) * stride // step)) for start, stop in chosen)
        # What these read is cut otherwise than what later sweeps do, and not worth keeping.
        matrix = replace(self.matrix, partitions=parts, source=self.matrix.source.bare())
        if matrix.filter is not None:
            matrix = replace(matrix, filter=replace(matrix.filter, mind=1.0))
        return replace(self, matrix=matrix, stage="warm start", note="", seconds=[], bytes_read=0)

    def run(self, statistic: Statistic, label: str, check: bool = False) -> tuple[Any, Moments | None]:
        """Sweep once; returns the statistic's value, and the features' moments if they were not known before.

        Parameters
        ----------
        check : look for missing and infinite values, and refuse them by the matrix's rule.
        """
        started = time.monotonic()
        total = self._execute(statistic, label, check or self.matrix.scaling is None)
        self.seconds.append(time.monotonic() - started)
        self.bytes_read += total.n_bytes
        try:
            total.defects.refuse(self.matrix.missing, self.matrix.source.name)
        except MissingValuesError as error:
            error.seconds, error.bytes_read = self.seconds, self.bytes_read
            raise
        if isinstance(total.missing, np.ndarray):
            self.sample_missing = total.missing
        if not total.moments:
            return total.value, None
        moments = Moments.concatenate(list(total.moments))
        whole = self.matrix.axis == 0 or len(moments.mean) == self.matrix.source.shape[1]
        return total.value, moments if whole else self._placed(moments)

    def _placed(self, moments: Moments) -> Moments:
        """Return moments of the features of some partitions at their places among all; the others have no values."""
        places = np.concatenate([np.arange(start, stop) for start, stop in self.matrix.partitions])
        whole = Moments.zero(self.matrix.source.shape[1])
        for name in ("count", "mean", "m2", "missing"):
            getattr(whole, name)[places] = getattr(moments, name)
        return whole

    def moments(self) -> Moments:
        """Sweep for the moments of the features alone."""
        moments = self.run(NoStatistic(), "moments")[1]
        assert moments is not None
        return moments

    def _execute(self, statistic: Statistic, label: str, check: bool) -> Partial:
        started = time.monotonic()
        count = len(self.matrix.partitions)

        def show(done: int) -> None:
            self.progress(
                Step(self.n_sweeps + 1, self.stage or label, done, count, time.monotonic() - started, self.note)
            )

        show(0)
        client = active_client()
        if client is not None:
            bare = replace(self.matrix, source=self.matrix.source.bare())
            matrix, shared = client.scatter([bare, statistic], broadcast=True, hash=False)
        else:
            matrix, shared = (delayed(x, traverse=False, pure=False) for x in (self.matrix, statistic))
        tasks = [
            delayed(run_partition, pure=False)(matrix, shared, start, stop, check, self._block(start, stop))
            for start, stop in self.matrix.partitions
        ]
        root = _tree(tasks, shared, self.matrix.merges_means)
        if client is not None:
            return _compute_on(client, tasks, root, show)
        with _PartitionCallback({task.key for task in tasks}, show), one_blas_thread:
            result: Partial = compute(root, scheduler=threaded.get, pool=self._threads())[0]
        return result

    def _threads(self) -> ThreadPoolExecutor:
        """Return threads of our own, with their buffers: the same ones for all sweeps until they rest."""
        if self.threads not in self._pools:
            self.rest()
            self._pools[self.threads] = ThreadPoolExecutor(self.threads, thread_name_prefix="streampca")
        return self._pools[self.threads]

    def rest(self) -> None:
        """Let the threads and their buffers go; the next sweep makes new ones."""
        while self._pools:
            self._pools.popitem()[1].shutdown()

    def _block(self, start: int, stop: int) -> Delayed | None:
        """Return the range of a Dask array as one task of its own graph; nothing for sources that tasks open."""
        source = self.matrix.source
        if not isinstance(source, DaskSource):
            return None
        part = source.array[start:stop] if self.matrix.axis == 0 else source.array[:, start:stop]
        block: Delayed = part.rechunk(part.shape).to_delayed().item()
        return block


def _tree(level: list[Delayed], statistic: Any, merges_means: bool) -> Delayed:
    """Merge neighbours, then neighbours of these, until one is left."""
    merge = delayed(combine, pure=False)
    while len(level) > 1:
        pairs = [merge(statistic, merges_means, *level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) // 2 * 2 :]
    return level[0]


class _PartitionCallback(Callback):
    """Counts the partitions that Dask's threads finish."""

    def __init__(self, keys: set[str], show: Callable[[int], None]):
        self._keys, self._show, self._done = keys, show, 0

    def _posttask(self, key: Any, result: Any, dsk: Any, state: Any, worker_id: Any) -> None:  # noqa: ARG002
        if key in self._keys:
            self._done += 1
            self._show(self._done)


def active_client() -> Any:
    """Return the `distributed.Client` in force, or None."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].default_client()
    except ValueError:
        return None


def _compute_on(client: Any, tasks: list[Delayed], root: Delayed, show: Callable[[int], None]) -> Partial:
    """Run the graph on a cluster, letting go of each partial once it is merged."""
    *parts, total = client.compute([*tasks, root])
    if len(parts) == 1:
        parts = []
    for done, future in enumerate(sys.modules["distributed"].as_completed(parts), start=1):
        future.release()
        show(done)
    result: Partial = total.result()
    return result


def _on_one_thread(function: Callable[[Any], Any], block: Any) -> Any:
    """Return the function of a block, with one thread of the BLAS: the same bits as a sweep gives."""
    with one_blas_thread:
        return function(block)


def lazy_rows(array: Any, function: Callable[[Any], Any], n_columns: int, dtype: Any) -> Any:
    """Return a Dask array of `function` of each block of whole rows of another, not computed yet."""
    whole = array.rechunk({1: -1})
    single = partial(_on_one_thread, function)
    return whole.map_blocks(single, dtype=dtype, chunks=(whole.chunks[0], (n_columns,)), meta=whole._meta.astype(dtype))

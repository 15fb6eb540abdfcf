"""The sweep: one read of all the data, reduced to something small.

A sweep is a Dask graph of one task per partition and a binary tree of merges. Partitions and tree are fixed by the
matrix, not by the workers, and the BLAS has one thread in each task: any engine gives the same bits. It runs on the
active `distributed.Client` if there is one, else on threads. With an active checkpoint, nodes of the tree are saved
from time to time, and a resumed run continues from them.
"""

from __future__ import annotations

import pickle
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
from dask import config, threaded
from dask.base import compute
from dask.callbacks import Callback
from dask.delayed import Delayed, delayed
from threadpoolctl import ThreadpoolController

from streampca.errors import InputError
from streampca.progress import Progress, Step, silent
from streampca.sources import Source
from streampca.sources.arrays import BlockSource
from streampca.sweep.checkpoint import Records, Signature, Span, active_checkpoint
from streampca.sweep.environment import check_environment, environment
from streampca.sweep.matrix import Defects, Matrix
from streampca.sweep.merge_tree import Nodes, Partial, halves_of, parent_of, path_to, same_form
from streampca.sweep.statistics import Moments, NoStatistic, Statistic, between_means, combine_moments


class _OneBlasThread:
    """Limits the BLAS to one thread while any `with` block is open; the last to close restores it."""

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


class _Threads:
    """Worker threads with their scratch buffers, kept while a `with` block is open and released at its end."""

    def __init__(self) -> None:
        self._open = 0
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> None:
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1
        if self._open == 0:
            self._release()

    def pool(self, size: int) -> ThreadPoolExecutor:
        """Return `size` threads: those of the sweep before, if they are as many."""
        if self._pool is None or self._pool._max_workers != size:
            self._release()
            self._pool = ThreadPoolExecutor(size, thread_name_prefix="streampca")
        return self._pool

    def _release(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


# Tiles whose means are merged at a time: a merge costs as much as a short tile; each tile keeps five numbers a feature.
MERGE_EVERY = 16
THIN_PARTITIONS = 16  # least number of partitions of a thinned sweep: enough for all threads, quick to merge
SECONDS_TO_SAVE = 20.0  # time that a stopped run waits for results of its workers


class _Sent:
    """A pickled object for workers; each unpickles it once, after a check of its software.

    Arrays that Dask sends itself may be unaligned, and NumPy rounds products of these differently.
    """

    def __init__(self, content: bytes, software: dict[str, str]):
        self._content, self._software = content, software
        self._lock = threading.Lock()
        self._value: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Sent, (self._content, self._software)

    def __sizeof__(self) -> int:
        return len(self._content)

    def here(self) -> Any:
        """Return the object."""
        with self._lock:
            if self._value is None:
                check_environment(self._software)
                self._value = pickle.loads(self._content)
            return self._value


def _here(sent: Any) -> Any:
    """Return an object that may have been sent."""
    return sent.here() if isinstance(sent, _Sent) else sent


def run_partition(
    matrix: Matrix, statistic: Statistic, start: int, stop: int, check: bool, block: Any = None
) -> Partial:
    """Reduce one partition: its own source, slab by slab, tile by tile."""
    matrix, statistic = _here(matrix), _here(statistic)
    if block is not None:
        matrix = replace(matrix, source=BlockSource(block, matrix.source.shape, matrix.axis, start))
    length = statistic.tile_length(matrix.n_full, matrix.dtype.itemsize)
    value = statistic.zero(matrix.n_full)
    moments: list[Moments] = []
    defects = Defects()
    n_bytes = 0
    missing: Any = 0
    # Values too large for the type become infinite; the caller checks the sums.
    with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
        for tile in matrix.tiles(start, stop, length, check, statistic.wants_missing, statistic.wants_exact):
            more = [tile.entries] * statistic.wants_missing + [tile.exact] * statistic.wants_exact
            statistic.update(value, tile.A, tile.start, *more)
            n_bytes += tile.n_bytes
            defects += tile.defects
            missing = missing + tile.missing
            if tile.moments is not None:
                moments.append(tile.moments)
            if matrix.merges_means and len(moments) == MERGE_EVERY:
                moments = [_merge_means(statistic, value, moments)]
        if matrix.merges_means:
            moments = [_merge_means(statistic, value, moments)]
        value = statistic.finish(value, start)
    return Partial(value, tuple(moments), defects, n_bytes, missing)


def _run_on_worker(*arguments: Any) -> Partial:
    """Run one partition; an error about its data names the host."""
    try:
        return run_partition(*arguments)
    except InputError as error:
        host = socket.gethostname()
        raise error if host in str(error) else InputError(f"{error} (on host {host})") from None


def combine(statistic: Statistic, merges_means: bool, a: Partial, b: Partial) -> Partial:
    """Merge two partials, a before b."""
    statistic = _here(statistic)
    with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
        value = statistic.combine(a.value, b.value)
        moments = a.moments + b.moments
        if merges_means and moments:
            moments = (_merge_means(statistic, value, list(moments)),)
    return Partial(value, moments, a.defects + b.defects, a.n_bytes + b.n_bytes, a.missing + b.missing)


def _merge_means(statistic: Statistic, value: Any, parts: list[Moments]) -> Moments:
    """Merge the moments of parts centred by their own means, and add the terms between these means to the value."""
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

    A `with` block keeps the worker threads and their buffers from one sweep to the next, and the BLAS at one thread.

    Parameters
    ----------
    matrix : replaced by the caller once its scaling is known.
    threads : tasks at a time, if no `distributed.Client` is active.
    progress : called with a `Step` when a sweep starts and when a partition is done.
    note : text next to the progress bar, set by the solver.
    stage : title of these sweeps in the progress; the label of each by default.
    seconds, bytes_read : of the sweeps so far; warm_seconds, of a warm start before them.
    all_missing, sample_missing : missing calls of each sample, of all variants and of those that are used, counted by
        the first sweep over genotypes.
    """

    matrix: Matrix
    threads: int = 1
    progress: Progress = silent
    note: str = ""
    stage: str = ""
    seconds: list[float] = field(default_factory=list)
    warm_seconds: float = 0.0
    bytes_read: int = 0
    all_missing: Any = None
    sample_missing: Any = None
    _threads: _Threads = field(default_factory=_Threads)
    _fingerprinted: tuple[Source, str] | None = None

    def __enter__(self) -> Sweeps:
        one_blas_thread.__enter__()
        self._threads.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.__exit__()
        one_blas_thread.__exit__()

    @property
    def n_sweeps(self) -> int:
        """Reads of all the data so far."""
        return len(self.seconds)

    def thinned(self, step: int) -> Sweeps:
        """Return sweeps over one row in `step`; see `thinned_partitions`."""
        parts = thinned_partitions(self.matrix.partitions, step)
        # Later sweeps read other ranges, so that decoded data are not kept.
        matrix = replace(self.matrix, partitions=parts, source=self.matrix.source.bare())
        if matrix.filter is not None:
            matrix = replace(matrix, filter=replace(matrix.filter, mind=1.0))
        return replace(self, matrix=matrix, stage="warm start", note="", seconds=[], bytes_read=0)

    def run(self, statistic: Statistic, label: str, check: bool = False) -> tuple[Any, Moments | None]:
        """Sweep once; return the value of the statistic, and the moments of the features if they were not known.

        Parameters
        ----------
        check : whether to raise for missing and infinite values that the matrix does not allow.
        """
        total, seconds = self._recorded(statistic, label, check or self.matrix.scaling is None)
        self.seconds.append(seconds)
        self.bytes_read += total.n_bytes
        source = self.matrix.source
        total.defects.check(self.matrix.missing, source.name, (source.samples, source.features))
        if isinstance(total.missing, np.ndarray):
            self.all_missing, self.sample_missing = total.missing
        if not total.moments:
            return total.value, None
        moments = Moments.concatenate(list(total.moments))
        complete = self.matrix.axis == 0 or len(moments.mean) == self.matrix.source.shape[1]
        return total.value, moments if complete else self._placed(moments)

    def _placed(self, moments: Moments) -> Moments:
        """Return the moments of the features of some partitions among all features; those of the others are zero."""
        features = np.concatenate([np.arange(start, stop) for start, stop in self.matrix.partitions])
        every = Moments.zero(self.matrix.source.shape[1])
        for f in fields(moments):
            getattr(every, f.name)[features] = getattr(moments, f.name)
        return every

    def moments(self) -> Moments:
        """Sweep for the moments of the features only."""
        moments = self.run(NoStatistic(), "moments")[1]
        assert moments is not None
        return moments

    def _recorded(self, statistic: Statistic, label: str, check: bool) -> tuple[Partial, float]:
        """Return the result of a sweep and its seconds; partitions in the checkpoint are not computed again."""
        checkpoint, count = active_checkpoint(), len(self.matrix.partitions)
        records: Records | None = None
        recorded: dict[Span, Any] = {}
        if checkpoint is not None:
            asked = {f.name: getattr(self.matrix, f.name) for f in fields(self.matrix) if f.name != "source"}
            data = self._fingerprint()
            # A float64 product certifies exactly the vectors that it was made with.
            precise = self.matrix.dtype == np.float64 and hasattr(statistic, "Q")
            asked |= {"data": data, "label": label, "check": check, "statistic": statistic}
            records = checkpoint.sweep(asked | {"vectors": Signature.of(statistic).exact if precise else ""})
            zero = statistic.zero(self.matrix.n_full)
            recorded = records.read(
                lambda span, record: (
                    path_to(span, count)[-1] == span
                    and isinstance(record.get("partial"), Partial)
                    and same_form(zero, record["partial"].value)
                )
            )
            checkpoint.count(recorded, count)
        nodes = Nodes(
            count,
            partial(combine, statistic, self.matrix.merges_means),
            {span: record["partial"] for span, record in recorded.items()},
            records,
            before=max((record["seconds"] for record in recorded.values()), default=0.0),
            flush=partial(_flush, statistic, self.matrix.source),
        )
        if (0, count) not in recorded:
            self.matrix.source.watch()
            with self.matrix.source.explaining():
                self._execute(statistic, label, check, nodes)
            self.matrix.source.watch()
            nodes.save()
        return nodes.live[0, count], nodes.seconds

    def _fingerprint(self) -> str:
        """Return the fingerprint of the source, computed once: it takes many requests to a remote store."""
        source = self.matrix.source
        if self._fingerprinted is None or self._fingerprinted[0] is not source:
            self._fingerprinted = source, f"{source.shape} {source.fingerprint()}"
        return self._fingerprinted[1]

    def _execute(self, statistic: Statistic, label: str, check: bool, nodes: Nodes) -> None:
        """Run the tasks of the nodes that are not on record."""

        def show() -> None:
            what = self.stage or label
            step = Step(self.n_sweeps + 1, what, nodes.done, nodes.count, nodes.elapsed, self.note, nodes.earlier)
            self.progress(step)

        show()
        client = active_client()
        if client is not None:
            # As tasks, not scattered: scattered data are lost with the worker that has them.
            bare = replace(self.matrix, source=self.matrix.source.bare())
            software = environment()
            matrix, shared = (delayed(_Sent, pure=False)(cloudpickle.dumps(x), software) for x in (bare, statistic))
        else:
            matrix, shared = (delayed(x, traverse=False, pure=False) for x in (self.matrix, statistic))
        one = delayed(run_partition if client is None else _run_on_worker, pure=False)
        two = delayed(combine, pure=False)
        tasks: dict[Span, Delayed] = {}
        blocks = self.matrix.source.delayed(self.matrix.axis, self.matrix.partitions)
        for a, b in nodes.to_do:
            if b - a == 1:
                start, stop = self.matrix.partitions[a]
                tasks[a, b] = one(matrix, shared, start, stop, check, None if blocks is None else blocks[a])
            else:
                tasks[a, b] = two(shared, self.matrix.merges_means, *(tasks[half] for half in halves_of((a, b))))
        if client is not None:
            _compute_on(client, tasks, nodes, show)
        else:
            with self:
                _compute_here(self._threads.pool(self.threads), tasks, nodes, show)


def thinned_partitions(partitions: tuple[Span, ...], step: int) -> tuple[Span, ...]:
    """Return ranges with one row in `step`: complete partitions if there are many, else the beginning of each."""
    stride = min(step, max(1, len(partitions) // THIN_PARTITIONS))
    return tuple(
        (start, start + -(-(stop - start) * stride // step)) for start, stop in partitions[stride // 2 :: stride]
    )


def _flush(statistic: Statistic, source: Source) -> None:
    """Flush the writers of a statistic before it is saved; raise if the data have changed."""
    source.watch()
    sink: Any = getattr(statistic, "sink", None)
    while sink is not None:
        if hasattr(sink, "flush"):
            sink.flush()
        sink = getattr(sink, "sink", None)


def active_client() -> Any:
    """Return the active `distributed.Client`, or None."""
    if "distributed" not in sys.modules:
        return None
    try:
        return sys.modules["distributed"].default_client()
    except ValueError:
        return None


def _compute_here(pool: ThreadPoolExecutor, tasks: dict[Span, Delayed], nodes: Nodes, show: Callable[[], None]) -> None:
    """Run the graph on threads of this process, saving nodes from time to time."""
    spans = {task.key: span for span, task in tasks.items()}

    def collect(key: Any, result: Any, *_: Any) -> None:
        if key in spans:
            nodes.add(spans[key], result)
            if not halves_of(spans[key]):
                show()
            if nodes.due:
                nodes.save()

    roots = [task for span, task in tasks.items() if parent_of(span, nodes.count) not in tasks]
    with Callback(posttask=collect):
        try:
            compute(*roots, scheduler=threaded.get, pool=pool)
        except BaseException:
            nodes.save_if_possible()
            raise


def _compute_on(client: Any, tasks: dict[Span, Delayed], nodes: Nodes, show: Callable[[], None]) -> None:
    """Run the graph on a cluster, releasing each node once it is merged.

    When it is time to save, nodes are gathered and merged here from then on: they are not lost with a worker.
    """
    with config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        futures = dict(zip(tasks, client.compute(list(tasks.values())), strict=True))
    spans = {future.key: span for span, future in futures.items()}

    def bring(needed: list[Span], seconds: float | None = None) -> None:
        remote = [span for span in needed if span in futures]
        gathered = client.sync(client._gather, [futures[span] for span in remote], callback_timeout=seconds)
        nodes.bring(dict(zip(remote, gathered, strict=True)))
        for span in [span for span in futures if span not in nodes.to_do]:
            futures.pop(span).release()

    def take_in(span: Span) -> None:
        for merged in nodes.add(span, futures[span]):
            futures.pop(spans[merged.key]).release()

    try:
        for future in sys.modules["distributed"].as_completed(list(futures.values())):
            span = spans[future.key]
            if span not in futures:
                continue
            if future.status != "finished":
                future.result()
            take_in(span)
            if not halves_of(span):
                show()
            if nodes.due:
                bring(nodes.largest())
                nodes.save()
        bring(list(nodes.live))
    except BaseException:
        with suppress(Exception):
            # Finished nodes that were not collected yet, children first.
            for span in [s for s in tasks if s in futures and s not in nodes.live]:
                if futures[span].status == "finished":
                    take_in(span)
            bring(nodes.largest(), SECONDS_TO_SAVE)
        nodes.save_if_possible()
        raise


def _on_one_thread(function: Callable[[Any], Any], block: Any) -> Any:
    """Call the function with one BLAS thread, for the same bits as in a sweep."""
    with one_blas_thread:
        return function(block)


def lazy_rows(array: Any, function: Callable[[Any], Any], n_columns: int, dtype: Any) -> Any:
    """Return a Dask array of `function` of each block of complete rows of another, not computed yet."""
    rows = array.rechunk({1: -1})
    single = partial(_on_one_thread, function)
    return rows.map_blocks(single, dtype=dtype, chunks=(rows.chunks[0], (n_columns,)), meta=rows._meta.astype(dtype))

"""Rates of this machine, measured in a few seconds by the code that a run uses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from streampca.run.engine import engine
from streampca.solvers.base import Wanted, first_sweep
from streampca.solvers.choose import Plan
from streampca.solvers.dense import Dense, leading_pairs
from streampca.solvers.krylov import Basis, Krylov
from streampca.solvers.power import Power
from streampca.sources import Source
from streampca.sources.made_up import made_up_like
from streampca.sweep.matrix import Defects, Matrix
from streampca.sweep.merge_tree import Partial
from streampca.sweep.statistics import Product, ProductAndRows, Projection, Scatter, Statistic
from streampca.sweep.sweep import Sweeps, combine, one_blas_thread

CALIBRATION_BYTES = 1 << 30  # at most, in memory
CALIBRATION_SECONDS = 1.0  # of each timing, about
REPEATS = 4
BASIS_ROWS = 50_000  # of the basis that the driver's part is measured with, at most
EIGH_SIDE = 1_500  # of the matrix that `eigh` is measured with, at most
SMALL_PARTITIONS = 32  # of the sweeps that measure the scheduler
SMALL_LENGTH = 128  # of each of these partitions


@dataclass(frozen=True)
class Rates:
    """Seconds measured on this machine.

    Attributes
    ----------
    threads : tasks at a time during the measurement.
    row, first_row, last_row : of one row of A (a variant, or a sample) and thread: in a sweep, in the first one,
        which also collects moments, and in one for scores or components.
    merge : of one merge.
    driver : of the driver after a sweep.
    loading : of libraries, here or in a worker; once.
    task, worker_task : of a task of Dask, for the scheduler and for the worker.
    side : length of the rows that were measured, if shorter than N.
    """

    threads: int
    row: float
    first_row: float
    last_row: float
    merge: float
    driver: float
    loading: float = 0.0
    task: float = 0.0
    worker_task: float = 0.0
    side: int = 0


def statistic_of(solver: Any, n_full: int, dtype: np.dtype[Any]) -> Statistic | None:
    """Return the statistic of a solver's sweeps, with a random block; None for solvers whose sweeps are not timed."""
    if isinstance(solver, Dense):
        return Scatter()
    if not isinstance(solver, (Krylov, Power)):
        return None
    b = min(solver.block_size, n_full) if isinstance(solver, Krylov) else 1
    block = (np.random.default_rng(0).standard_normal((n_full, b), np.float32) / math.sqrt(n_full)).astype(dtype)
    return ProductAndRows(block) if isinstance(solver, Krylov) and solver.keep_rows else Product(block)


def measure(plan: Plan, data: Source, threads: int) -> Rates:
    """Measure the rates of the sweeps that a plan says can be timed.

    Parameters
    ----------
    threads : tasks at a time, or as many as fit in CALIBRATION_BYTES. If not even one fits, rows are shortened, and
        the seconds multiplied.
    """
    timed = plan.timed
    assert timed is not None
    solver, need, axis, k = plan.solver, plan.need, plan.cut.axis, timed.n_components
    n = n_full = data.shape[1 - axis]
    room = CALIBRATION_BYTES - 3 * need.partial
    # The work of a row grows with its length, or with the square of it.
    power = 2 if isinstance(solver, Dense) else 1
    if room < need.task + need.partial:
        n = int(n_full * (CALIBRATION_BYTES / (need.task + 4 * need.partial)) ** (1 / power))
        data = made_up_like(data, (data.shape[0], n) if axis == 0 else (n, data.shape[1]))
    threads = max(1, min(threads, room // (need.task + need.partial)))
    statistic = statistic_of(solver, n, plan.dtype)
    assert statistic is not None

    def rates(statistic: Statistic, merge: float, resident_bytes: int = 0) -> tuple[float, float, float]:
        kept = replace(plan, resident_bytes=resident_bytes)
        return _row_seconds(kept.matrix(data, timed.missing, timed.scale), statistic, threads, merge)

    with one_blas_thread:
        merge = _merge_seconds(statistic, n)
        row, first, loading = rates(statistic, merge)
        kept = plan.resident_bytes / max(1, plan.sweep_bytes)
        if kept and n == n_full and power == 1:
            row += kept * (rates(statistic, merge, plan.resident_bytes)[0] - row)
        last = 0.0
        if axis == 0 or not getattr(solver, "keep_rows", False):
            vectors = np.random.default_rng(0).standard_normal((n, min(k, n)), np.float32).astype(plan.dtype)
            last = rates(Projection(vectors), 0.0)[0] * n_full / n
        driver = driver_seconds(plan, n_full, k)
    grown = (n_full / n) ** power
    side = n if n < n_full else 0
    return Rates(threads, row * grown, first * grown, last, merge * grown, driver, loading, side=side)


def _row_seconds(matrix: Matrix, statistic: Statistic, threads: int, merge: float) -> tuple[float, float, float]:
    """Return the seconds of a row and thread, in a sweep and in the first sweep, and of loading libraries."""
    # Only iterative solvers have sweeps after the first.
    dense = isinstance(statistic, Scatter)

    def sweeps(rows: int) -> Sweeps:
        return Sweeps(replace(matrix, partitions=_pieces(matrix, threads, rows)), threads)

    def spent(sweeps: Sweeps, first: bool) -> float:
        sweep = sweeps.run if dense or not first else partial(first_sweep, sweeps)
        return _seconds(lambda: sweep(statistic, "calibration"))

    def each(sweeps: Sweeps, first: bool) -> float:
        seconds, lengths = spent(sweeps, first), [stop - start for start, stop in sweeps.matrix.partitions]
        return max(seconds - merge * (len(lengths) - 1), seconds / 10) / sum(lengths)

    # Loads libraries, and shows how many rows are enough.
    with sweeps(max(matrix.slab_length, statistic.tile_length(matrix.n_full, matrix.dtype.itemsize))) as guess:
        whole = spent(guess, True)
        enough = int(CALIBRATION_SECONDS / each(guess, False))
    first, later = [], []
    with sweeps(enough) as piece:
        for i in range(REPEATS):
            if i < 2 or dense:
                piece.matrix = replace(piece.matrix, scaling=None)
                first.append(each(piece, True))
            if not dense:
                later.append(each(piece, False))
    rows = sum(stop - start for start, stop in guess.matrix.partitions)
    return min(later or first), min(first), max(0.0, whole - rows * min(first))


def _pieces(matrix: Matrix, threads: int, rows: int) -> tuple[tuple[int, int], ...]:
    """Return ranges of about `rows` rows for each thread: whole partitions, or the beginning of one."""
    longest = max(stop - start for start, stop in matrix.partitions)
    count = min(len(matrix.partitions), threads * max(1, round(rows / longest)))
    # Parts of a partition are whole slabs; more than half a partition is taken as a whole one.
    length = longest if 2 * rows >= longest else math.ceil(rows / matrix.slab_length) * matrix.slab_length
    return tuple((start, min(stop, start + length)) for start, stop in matrix.partitions[:count])


def _merge_seconds(statistic: Statistic, n_full: int) -> float:
    """Seconds of merging two partials."""
    halves = [Partial(statistic.zero(n_full), (), Defects(), 0) for _ in range(2)]
    for half in halves:
        (half.value[0] if isinstance(half.value, tuple) else half.value)[:] = 1.0
    return min(_seconds(lambda: combine(statistic, False, *halves)) for _ in range(REPEATS))


def _seconds(function: Callable[[], Any]) -> float:
    """Return the processor seconds of all threads: neither other processes nor storage count."""
    began = time.process_time()
    function()
    return time.process_time() - began


def driver_seconds(plan: Plan, n_full: int, k: int) -> float:
    """Measure the work of the driver after a sweep, on fewer rows if there are many."""
    rng, solver = np.random.default_rng(0), plan.solver
    if isinstance(solver, Dense):
        side = min(n_full, EIGH_SIDE)
        factor = rng.standard_normal((side, side))
        square = factor @ factor.T
        seconds = _seconds(lambda: leading_pairs(square, Wanted(min(k, side), None, 0.1), 1.0))
        return seconds * (n_full / side) ** 3
    if not isinstance(solver, Krylov):
        return 0.0
    side = min(n_full, BASIS_ROWS)
    b = min(solver.block_size, side)
    basis = Basis(side, min(solver.max_basis, side), rng)
    basis.start(rng.standard_normal((side, b)))
    spent: list[float] = []
    while len(spent) < plan.sweeps:
        product = rng.standard_normal((side, basis.b))
        began = time.process_time()
        basis.expand(product)
        basis.ritz()
        complete = basis.complete
        if not complete:
            basis.next_block(b, min(k, basis.m))
        spent.append(time.process_time() - began)
        if complete:
            break
    return sum(spent) / len(spent) * n_full / side


def measure_tasks(data: Source) -> dict[str, Any]:
    """Measure the seconds of a task of Dask, and of loading a worker, by small sweeps on two processes."""
    shape = (SMALL_LENGTH, SMALL_PARTITIONS * SMALL_LENGTH)
    small = made_up_like(data, shape)
    ranges = tuple((i, i + SMALL_LENGTH) for i in range(0, shape[1], SMALL_LENGTH))
    matrix = Matrix(small, 1, np.dtype(np.float32), "mean", partitions=ranges, slab_length=SMALL_LENGTH)
    block = np.ones((SMALL_LENGTH, 8), np.float32)
    settings = SimpleNamespace(kind="processes", workers=2, dashboard=False)
    spent = []
    with engine(settings, 1, CALIBRATION_BYTES) as client:
        client.wait_for_workers(settings.workers)
        sweeps = Sweeps(matrix)
        for _ in range(REPEATS):
            before = time.process_time(), sum(client.run(time.process_time).values())
            sweeps.run(Product(block), "calibration")
            after = time.process_time(), sum(client.run(time.process_time).values())
            spent.append([now - then for now, then in zip(after, before, strict=True)])
    driver, workers = (min(each) for each in zip(*spent[1:], strict=True))
    count = 2 * SMALL_PARTITIONS - 1
    loading = max(0.0, spent[0][1] - workers) / settings.workers
    return {"task": driver / count, "worker_task": workers / count, "loading": loading}

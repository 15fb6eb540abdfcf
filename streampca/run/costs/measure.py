"""Rates of this machine, measured in a few seconds by the code that a run uses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from streampca.run.costs.model import Rates
from streampca.run.engine import engine
from streampca.solvers.base import Wanted, first_sweep
from streampca.solvers.choose import Plan
from streampca.solvers.dense import Dense, leading_pairs
from streampca.solvers.krylov import Basis, Krylov
from streampca.solvers.power import Power
from streampca.sources import Source
from streampca.sources.shape_only import like
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
    assert plan.timed is not None
    scale, missing, k = plan.timed.scale, plan.timed.missing, plan.timed.n_components
    solver, need, n_full = plan.solver, plan.need, data.shape[1 - plan.cut.axis]
    dense = isinstance(solver, Dense)
    room = CALIBRATION_BYTES - 3 * need.partial
    threads = max(1, min(threads, room // (need.task + need.partial)))
    n, power = n_full, 2 if dense else 1
    if room < need.task + need.partial:
        n = int(n_full * (CALIBRATION_BYTES / (need.task + 4 * need.partial)) ** (1 / power))
        data = _shortened(data, plan.cut.axis, n)
    grown = (n_full / n) ** power
    bare = replace(plan, resident_bytes=0).matrix(data, missing, scale)
    statistic = statistic_of(solver, n, plan.dtype)
    assert statistic is not None
    with one_blas_thread:
        merge = _merge_seconds(statistic, n)
        row, first, loading = _row_seconds(bare, statistic, threads, merge)
        kept = plan.resident_bytes / max(1, plan.sweep_bytes)
        if kept and n == n_full and not dense:
            fast, _, _ = _row_seconds(plan.matrix(data, missing, scale), statistic, threads, merge)
            row = (1 - kept) * row + kept * fast
        last = 0.0
        if plan.cut.axis == 0 or not getattr(solver, "keep_rows", False):
            vectors = np.random.default_rng(0).standard_normal((n, min(k, n)), np.float32).astype(plan.dtype)
            last = _row_seconds(bare, Projection(vectors), threads, 0.0)[0] * n_full / n
        driver = driver_seconds(plan, n_full, k)
    side = n if n < n_full else 0
    return Rates(threads, row * grown, first * grown, last, merge * grown, driver, loading, side=side)


def _shortened(data: Source, axis: int, n: int) -> Source:
    """Return simulated data with shorter rows."""
    shape = (data.shape[0], n) if axis == 0 else (n, data.shape[1])
    return like(data, shape)


def _row_seconds(matrix: Matrix, statistic: Statistic, threads: int, merge: float) -> tuple[float, float, float]:
    """Return the seconds of a row and thread, in a sweep and in the first sweep, and of loading libraries."""

    def sweeps(pieces: tuple[tuple[int, int], ...]) -> Sweeps:
        return Sweeps(replace(matrix, partitions=pieces), threads)

    dense = isinstance(statistic, Scatter)

    def once(piece: Sweeps, first: bool) -> None:
        if first and not dense:
            first_sweep(piece, statistic, "calibration")
        else:
            piece.run(statistic, "calibration")

    def timed(piece: Sweeps, first: bool) -> float:
        seconds = _seconds(lambda: once(piece, first))
        count, rows = len(piece.matrix.partitions), sum(b - a for a, b in piece.matrix.partitions)
        return max(seconds - merge * (count - 1), seconds / 10) / rows

    # Loads libraries, and shows how many rows are enough.
    shortest = max(matrix.slab_length, statistic.tile_length(matrix.n_full, matrix.dtype.itemsize))
    guess = sweeps(_pieces(matrix, threads, shortest))
    with guess:
        whole = _seconds(lambda: once(guess, True))
        enough = int(CALIBRATION_SECONDS / timed(guess, False))
    piece = sweeps(_pieces(matrix, threads, enough))
    first, later = [], []
    with piece:
        for i in range(REPEATS):
            # Only iterative solvers have sweeps after the first.
            if i < 2 or dense:
                piece.matrix = replace(piece.matrix, scaling=None)
                first.append(timed(piece, True))
            if not dense:
                later.append(timed(piece, False))
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


def driver_seconds(plan: Plan, n_full: int, k: int) -> tuple[float, ...]:
    """Measure the work of the driver after each sweep, on fewer rows if there are many."""
    rng = np.random.default_rng(0)
    solver = plan.solver
    if isinstance(solver, Dense):
        side = min(n_full, EIGH_SIDE)
        factor = rng.standard_normal((side, side))
        square = factor @ factor.T
        seconds = _seconds(lambda: leading_pairs(square, Wanted(min(k, side), None, 0.1), 1.0))
        return (seconds * (n_full / side) ** 3,)
    if not isinstance(solver, Krylov):
        return ()
    side = min(n_full, BASIS_ROWS)
    b = min(solver.block_size, side)
    basis = Basis(side, min(solver.max_basis, side), rng)
    basis.start(rng.standard_normal((side, b)))
    spent = []
    for _ in range(plan.sweeps):
        product = rng.standard_normal((side, basis.b))
        began = time.process_time()
        basis.expand(product)
        basis.ritz()
        more = None if basis.complete else basis.next_block(b, min(k, basis.m))
        spent.append((time.process_time() - began) * n_full / side)
        if more is None:
            break
    return tuple(spent)


def measure_tasks(data: Source) -> dict[str, Any]:
    """Measure the seconds of a task of Dask, and of loading a worker, by small sweeps on two processes."""
    shape = (SMALL_LENGTH, SMALL_PARTITIONS * SMALL_LENGTH)
    small = like(data, shape)
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

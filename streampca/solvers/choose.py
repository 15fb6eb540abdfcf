"""Choosing the cut and the solver: from shape, k, memory and cost, before anything is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca.errors import InputError
from streampca.solvers.base import PROBE_TOL, Solver
from streampca.solvers.certificate import PROBES
from streampca.solvers.dense import Dense
from streampca.solvers.krylov import Krylov
from streampca.solvers.power import Power
from streampca.sources import Source
from streampca.sources.wrappers import Cached
from streampca.sweep.matrix import Matrix, tile_dtype
from streampca.sweep.memory import (
    Cut,
    Footprint,
    cut,
    footprint,
    process_bytes,
    show_bytes,
    thread_count,
    threads_that_fit,
)
from streampca.sweep.scaling import check_choice, divisor_of
from streampca.sweep.statistics import STRIP, Scatter, Statistic
from streampca.sweep.sweep import active_client

SOLVERS = ("auto", "covariance", "gram", "krylov", "power")

# A rough model of one core, to compare solvers by: what matters is the ratio of these.
READ_RATE = 6e8  # bytes/s, decoding included
PRODUCT_RATE = 6e10  # flop/s of a thin product in float32
SCATTER_RATE = 7.5e10  # multiply-adds/s of A'A in float32, counting N^2 for each row
EIGH_RATE = 8e9  # flop/s of the reduction to tridiagonal form
KRYLOV_SWEEPS = 8
POWER_SWEEPS = 20  # for each component
# The choice of solver and basis must not depend on how many workers there are, or the same input would not give the
# same bits: costs are compared for so many tasks at a time, and the basis may take this share of the memory limit.
NOMINAL_THREADS = 4
BASIS_SHARE = 0.2
ROWS_SHARE = 0.25  # of the memory limit, for rows of A V that are kept
# A warm start takes a tenth of the variants, which must be many more than the vectors that it is to find.
WARM_VARIANTS = 500


@dataclass(frozen=True)
class Plan:
    """What will be done, and what it costs.

    Attributes
    ----------
    solver, name, reason : the solver with its parameters, what it is called, and why it was chosen.
    cut, dtype, threads : how the matrix is cut, the type of its tiles, tasks at a time.
    peak_bytes, limit_bytes, resident_bytes : memory expected, allowed, and used to keep decoded data.
    sweep_bytes, sweeps : bytes of one read of all data, and how many are expected.
    seconds : a rough guess.
    need : what the peak is made of.
    """

    solver: Solver
    name: str
    reason: str
    cut: Cut
    dtype: np.dtype[Any]
    threads: int
    peak_bytes: int
    limit_bytes: int
    resident_bytes: int
    sweep_bytes: int
    sweeps: int
    seconds: float
    need: Footprint

    def lines(self) -> list[tuple[str, str]]:
        """Return what a person wants to know of it, as pairs of name and text."""
        along = "samples" if self.cut.axis == 0 else "features"
        kept = f", {show_bytes(self.resident_bytes)} of decoded data kept" if self.resident_bytes else ""
        return [
            ("solver", f"{self.name}: {self.reason}"),
            ("sweeps", f"about {self.sweeps}, each {show_bytes(self.sweep_bytes)} uncompressed"),
            ("partitions", f"{len(self.cut.partitions)} along {along}, {self.threads} at a time, {self.dtype} tiles"),
            ("memory", f"{show_bytes(self.peak_bytes)} of {show_bytes(self.limit_bytes)} allowed{kept}"),
            ("time", f"about {self.seconds:.0f} s by a rough model of the machine"),
        ]

    def facts(self) -> dict[str, Any]:
        """Return the numbers, for programs."""
        keys = (
            "name", "reason", "threads", "peak_bytes", "limit_bytes", "resident_bytes", "sweep_bytes", "sweeps",
            "seconds",
        )  # fmt: skip
        facts = {key: getattr(self, key) for key in keys}
        return facts | {"partitions": len(self.cut.partitions), "axis": self.cut.axis}

    def matrix(self, source: Source, scale: str | None, missing: str) -> Matrix:
        """Return the source cut and scaled as planned."""
        kept = Cached(source, self.resident_bytes) if self.resident_bytes else source
        return Matrix(
            kept, self.cut.axis, self.dtype, missing=missing, scale=scale, partitions=self.cut.partitions,
            slab_length=self.cut.slab_length, filter=source.filter,
            divisor=divisor_of(scale, source.features),
        )  # fmt: skip


@dataclass(frozen=True)
class Way:
    """One way to do it: its solver, its cost in core-seconds, and the memory that it needs."""

    solver: Any
    name: str
    cut: Cut
    need: Footprint
    sweeps: int
    seconds: float
    reason: str

    def threads(self, limit: int, most: int) -> int:
        """Return how many tasks run at a time: as many as there are, as are wanted, and as fit."""
        return threads_that_fit(self.need, limit, max(1, min(most, len(self.cut.partitions))), self.name)


def plan(
    source: Source, k: int | None, solver: str, tol: float, limit: int, seed: Any,
    keep_scatter: bool = False, extra_sweeps: int = 0,
) -> Plan:  # fmt: skip
    """Choose how to find k leading components (None: as many as a fraction of the variance takes).

    Parameters
    ----------
    limit : bytes.
    keep_scatter : the estimator wants A'A, to merge by.
    extra_sweeps : reads that follow the fit, as for scores.
    """
    check_choice("solver", solver, SOLVERS)
    ways = _ways(source, k, limit, tol, keep_scatter, seed)
    # The power method needs the least memory and by far the most sweeps: only for those who ask for it.
    ways = [way for way in ways if (way.name != "power" if solver == "auto" else way.name == solver)]
    if not ways:
        raise InputError(f"solver={solver!r} is not for genotypes; use 'auto', 'gram', 'krylov' or 'power'")
    return cheapest(ways, source, tile_dtype(source.dtype), limit, solver, extra_sweeps=extra_sweeps)


def cheapest(
    ways: Sequence[Way], source: Source, dtype: np.dtype[Any], limit: int, asked: str, *, extra_sweeps: int = 0,
    beside: str = "",
) -> Plan:  # fmt: skip
    """Plan the way that takes the least time within the memory limit; refuse if none fits.

    Parameters
    ----------
    dtype : of tiles.
    limit : bytes.
    asked : the solver that was asked for.
    extra_sweeps : reads that follow the fit, as for scores.
    beside : what a refusal says beside solver and shape.
    """
    fitting = [way for way in ways if way.need.peak(1) <= limit]
    if not fitting:
        least = min(ways, key=lambda way: way.need.peak(1))
        shape = " x ".join(map(str, source.shape))
        threads_that_fit(least.need, limit, 1, f"{source.name}: {least.name} on {shape}{beside}")
    best = min(fitting, key=lambda way: way.seconds / way.threads(limit, NOMINAL_THREADS))
    threads = best.threads(limit, thread_count())
    # Cut along features, the fit itself gives what these sweeps are for.
    sweeps = best.sweeps + (extra_sweeps if best.cut.axis == 0 else 0)
    spare = limit - best.need.peak(threads)
    resident = min(spare * 3 // 4, source.n_bytes) if sweeps > 1 and source.costly and active_client() is None else 0
    return Plan(
        solver=best.solver,
        name=best.name,
        reason=best.reason if asked == "auto" else "as asked",
        cut=best.cut,
        dtype=dtype,
        threads=threads,
        peak_bytes=best.need.peak(threads) + resident,
        limit_bytes=limit,
        resident_bytes=resident,
        sweep_bytes=source.n_bytes,
        sweeps=sweeps,
        seconds=best.seconds / threads,
        need=best.need,
    )


def block_size(k: int | None) -> int:
    """Columns of a Krylov block: a few more than the components, so that the last ones converge with the rest.

    A multiple of 8, for which the BLAS takes less time than for the number before.
    """
    return 32 if k is None else -(-(k + 4) // 8) * 8


def _ways(source: Source, k: int | None, limit: int, tol: float, keep_scatter: bool, seed: Any) -> list[Way]:
    """List each solver with its natural cut, and the iterative ones with both."""
    process = process_bytes()
    ways = []
    for axis in source.cut_axes:
        ways.append(_dense(source, axis, k, process, keep_scatter))
        ways.append(_krylov(source, axis, k, process, limit, tol, seed))
        ways.append(_power(source, axis, k, process, seed))
    return ways


def _dense(source: Source, axis: int, k: int | None, process: int, keep_scatter: bool) -> Way:
    n_block, N = source.shape[axis], source.shape[1 - axis]
    partial = 8 * N * N
    plan = cut(source, axis, partial)
    k = k or N
    copies = 2 + int(keep_scatter and axis == 0) if k < N else 3
    driver = 8 * N * k + (copies - 1) * partial + components_bytes(source, axis, k)
    need = footprint(source, plan, _tile_bytes(source, Scatter(), N, STRIP), partial, driver, process)
    need = replace(need, after=after_bytes(source, axis, k))
    seconds = source.n_bytes / READ_RATE + n_block * N * N / SCATTER_RATE + 4 / 3 * N**3 / EIGH_RATE
    what = "d x d covariance" if axis == 0 else "n x n Gram matrix (the N < d trick)"
    reason = f"the {what}, {N} x {N}, takes one sweep and {show_bytes(partial)}"
    name = "covariance" if axis == 0 else "gram"
    return Way(Dense(keep_scatter), name, plan, need, 1 + axis, seconds, reason)


def _krylov(source: Source, axis: int, k: int | None, process: int, limit: int, tol: float, seed: Any) -> Way:
    n, d = source.shape
    N = source.shape[1 - axis]
    b = min(block_size(k), N)
    probes = PROBES if tile_dtype(source.dtype) != np.float64 and tol >= PROBE_TOL else 0
    partial = 8 * N * (b + probes)
    plan = cut(source, axis, partial)
    least = min(N, (k or b) + 2 * b)
    # Next to the basis: the product, its residual and their factors, Ritz vectors and their residuals, and probes.
    others = 8 * N * (5 * b + 2 * (k or b) + 2 * probes)
    # A tolerance below what probes can certify ends in float64 tiles.
    itemsize = 8 if tol < PROBE_TOL else tile_dtype(source.dtype).itemsize
    tile = _tile_bytes(source, Statistic(), N, b)
    smallest = footprint(
        source, plan, tile, partial, others + 8 * N * least + components_bytes(source, axis, k), process
    )
    wanted = min(N, max(least, k + 12 * b)) if k is not None else N
    basis = int(np.clip(limit * BASIS_SHARE // (8 * N), least, wanted))
    if smallest.peak(1) + 8 * N * (basis - least) > limit:
        basis = least
    # Rows are kept for a somewhat shorter basis: mostly it does not grow as long as that.
    short = min(basis, max(least, (k or b) + 6 * b))
    # Probes keep a row of eight bytes and one of four each.
    rows_bytes = source.shape[axis] * (itemsize * (short + b + 2 * (k or b)) + 12 * probes)
    room = limit - smallest.peak(1) - 8 * N * (short - least)
    keep_rows = axis == 1 and k is not None and rows_bytes <= min(room, limit * ROWS_SHARE)
    if keep_rows:
        basis = short
    need = replace(
        smallest,
        driver=smallest.driver + 8 * N * (basis - least) + (rows_bytes if keep_rows else 0),
        after=after_bytes(source, axis, k),
    )
    sweeps = min(KRYLOV_SWEEPS + max(0, int(-math.log10(tol)) - 3), math.ceil(N / b))
    total = sweeps + int(axis == 1 and not keep_rows)
    orthogonalising = 8.0 * N * b * b * sweeps
    seconds = total * (source.n_bytes / READ_RATE + (4.0 * n * d * b + orthogonalising) / PRODUCT_RATE)
    reason = f"blocks of {b} need about {sweeps} sweeps, and a basis of {N} x {basis}"
    warm_start = k is not None and source.warm_starts and source.shape[axis] >= WARM_VARIANTS * b
    solver = Krylov(block_size(k), basis, keep_rows, warm_start, seed)
    return Way(solver, "krylov", plan, need, total, seconds, reason)


def _power(source: Source, axis: int, k: int | None, process: int, seed: Any) -> Way:
    n, d = source.shape
    N = source.shape[1 - axis]
    plan = cut(source, axis, 8 * N)
    count = k or 16
    need = footprint(
        source,
        plan,
        _tile_bytes(source, Statistic(), N, 1),
        8 * N,
        8 * N * (count + 8) + components_bytes(source, axis, k),
        process,
    )
    sweeps = POWER_SWEEPS * count
    seconds = (sweeps + axis) * (source.n_bytes / READ_RATE + 8.0 * n * d / PRODUCT_RATE)
    return Way(Power(seed), "power", plan, need, sweeps + axis, seconds, "the power method with peeling")


def components_bytes(source: Source, axis: int, k: int | None) -> int:
    """Bytes of the sweep for the d x k components in float64, as a list and joined, and of moments."""
    return source.shape[1] * (2 * 8 * ((k or 16) + 1) + 64) if axis == 1 else 0


def after_bytes(source: Source, axis: int, k: int | None) -> int:
    """Bytes of the components as rows, as they are made orthonormal, and as they are written."""
    n, d = source.shape
    return (k or 16) * (4 * 8 * d + 3 * 8 * n) + 64 * d if axis == 1 else 0


def _tile_bytes(source: Source, statistic: Statistic, n_full: int, width: int) -> int:
    """Bytes of a float64 tile, of its copy in float32, and of the temporary that its product takes, N x width."""
    copies = 8 if tile_dtype(source.dtype) == np.float64 else 12
    return n_full * (copies * statistic.tile_length(n_full, 8) + 8 * min(width, n_full))


def check_components(n_components: object, shape: tuple[int, int]) -> tuple[int | None, float | None]:
    """Return (number, None) or (None, fraction) of what a user gave for n_components."""
    largest = min(shape)
    allowed = (
        f"give a whole number from 1 to {largest} (the smaller of {shape[0]} samples and {shape[1]} features), "
        "a fraction between 0 and 1, or None for all"
    )
    if n_components is None or n_components == "all":
        return largest, None
    if isinstance(n_components, (float, np.floating)) and 0 < n_components < 1:
        return None, float(n_components)
    if (
        isinstance(n_components, (int, np.integer))
        and not isinstance(n_components, bool)
        and 1 <= n_components <= largest
    ):
        return int(n_components), None
    raise InputError(f"n_components={n_components!r} cannot be used: {allowed}")

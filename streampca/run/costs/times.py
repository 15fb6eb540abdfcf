"""The time model: seconds of a sweep, from what was measured, and of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streampca.run.costs.sizes import Sizes
from streampca.solvers.choose import Plan
from streampca.solvers.krylov import WARM_STEP, WARM_SWEEPS, Krylov
from streampca.sources.shape_only import PaperArray
from streampca.sweep.matrix import Matrix
from streampca.sweep.sweep import Sweeps

# Assumed, not measured: bytes/s of each machine's network.
NETWORK_RATE = 1e9
# Sweeps take so much longer than their parts, measured one by one: threads and processes wait for each other at times.
# By scripts/bench/plan on two cores, where without it predictions were 0.7 to 1 of what was measured.
WAITING = 1.2


@dataclass(frozen=True)
class Rates:
    """Seconds as measured here.

    Attributes
    ----------
    threads : tasks at a time while it was measured.
    row, first_row, last_row : of one row of A (a variant, or a sample) and thread: in a sweep, in the first one,
        which also collects moments, and in one for scores or components.
    merge : of one merge.
    driver : after each sweep, one after the other.
    loading : until all that is needed is loaded, here or by a worker; once.
    task, worker_task : of a task of Dask, for the scheduler and for the worker.
    side : length of the rows that were measured, if not N.
    """

    threads: int
    row: float
    first_row: float
    last_row: float
    merge: float
    driver: tuple[float, ...]
    loading: float = 0.0
    task: float = 0.0
    worker_task: float = 0.0
    side: int = 0

    @property
    def mean_driver(self) -> float:
        """Seconds of the driver after a sweep."""
        return sum(self.driver) / max(1, len(self.driver))


@dataclass(frozen=True)
class SweepTime:
    """Seconds of one sweep, and what they are made of."""

    computing: float
    merging: float
    network: float
    scheduling: float
    driver: float

    @property
    def seconds(self) -> float:
        """All together."""
        return float(sum(asdict(self).values()))


@dataclass(frozen=True)
class Crew:
    """Who works: processes and threads of each, what they send, and whether all share this machine."""

    workers: int
    threads: int
    sizes: Sizes | None = None
    local: bool = False

    @property
    def slots(self) -> int:
        """Tasks at a time."""
        return self.workers * self.threads


def sweep_time(lengths: Sequence[int], row: float, driver: float, rates: Rates, crew: Crew) -> SweepTime:
    """Model one sweep over partitions of these lengths.

    Partitions come in rounds, one for each thread. Then each thread has merged its own, and the rest is done in a tree.

    Parameters
    ----------
    row : seconds of a row and thread.
    """
    slots, count, workers = crew.slots, len(lengths), crew.workers
    computing = row * math.fsum(max(lengths[i : i + slots]) for i in range(0, count, slots))
    levels = math.ceil(math.log2(max(1, min(slots, count))))
    merges = max(0, count - slots) / slots + levels
    network, scheduling = 0.0, 0.0
    if crew.sizes is not None:
        sizes = crew.sizes
        # From the driver to one worker, then from each that has it to two that have not.
        handing_out = sizes.shared * (1 + 2 * math.ceil(math.log(workers, 3)))
        crossing = sizes.of(sum(lengths) // count) * (1 - 1 / workers) * (max(0, count - slots) / workers + levels)
        network = (handing_out + crossing + sizes.of(sum(lengths))) / NETWORK_RATE
        # On one machine the scheduler takes its time from the workers; elsewhere, each worker has its own tasks.
        cores = os.cpu_count() or 1
        each = (rates.task + rates.worker_task) / cores if crew.local else rates.task + rates.worker_task / workers
        scheduling = each * (2 * count - 1)
    return SweepTime(
        WAITING * computing, WAITING * rates.merge * merges, network, WAITING * scheduling, WAITING * driver
    )


@dataclass(frozen=True)
class Times:
    """The time model of a run: each kind of sweep, and how many there are."""

    warm: SweepTime | None
    first: SweepTime
    later: SweepTime
    last: SweepTime | None
    loading: float

    def total(self, sweeps: int, warm_sweeps: int = WARM_SWEEPS) -> float:
        """Seconds of a run with so many sweeps over all data, after so many over a tenth."""
        rest = sweeps - 1 - (self.last is not None)
        seconds = self.first.seconds + max(0, rest) * self.later.seconds + self.loading
        seconds += warm_sweeps * self.warm.seconds if self.warm else 0.0
        return seconds + (self.last.seconds if self.last and sweeps > 1 else 0.0)


def times_of(plan: Plan, rates: Rates, crew: Crew) -> Times:
    """Model the sweeps of a plan."""
    lengths = [stop - start for start, stop in plan.cut.partitions]
    solver = plan.solver

    def model(lengths: Sequence[int], row: float, driver: float) -> SweepTime:
        return sweep_time(lengths, row, driver, rates, crew)

    warm, last = None, None
    if isinstance(solver, Krylov) and solver.warm_start:
        warm = model(_thinned(plan), rates.row, rates.mean_driver)
    if rates.last_row:
        last = model(lengths, rates.last_row, 0.0)
    first_driver = rates.driver[0] if rates.driver else 0.0
    return Times(
        warm, model(lengths, rates.first_row, first_driver), model(lengths, rates.row, rates.mean_driver), last,
        rates.loading,
    )  # fmt: skip


def _thinned(plan: Plan) -> list[int]:
    """Return the lengths of the partitions of a warm start."""
    matrix: Any = Matrix(PaperArray("", (2, 2)), plan.cut.axis, plan.dtype, partitions=plan.cut.partitions)
    return [stop - start for start, stop in Sweeps(matrix).thinned(WARM_STEP).matrix.partitions]

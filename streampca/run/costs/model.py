"""The cost model: bytes that a sweep holds and sends, and its seconds.

seconds of a sweep = computing / (workers x threads) + merging + network + scheduling + driver
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from streampca.solvers.choose import Plan
from streampca.solvers.krylov import WARM_STEP, WARM_SWEEPS, Krylov
from streampca.sources import Source
from streampca.sweep.memory import Footprint
from streampca.sweep.merge_tree import halves_of
from streampca.sweep.statistics import Product, ProductAndRows, Scatter, Statistic
from streampca.sweep.sweep import thinned_partitions

NETWORK_RATE = 1e9  # bytes/s of each machine's network; assumed
# Ratio of a sweep to the sum of its parts, which are measured one by one: threads and processes wait for each other.
# By scripts/bench/plan on two cores, where predictions without it were 0.7 to 1 of the measured seconds.
WAITING = 1.2


@dataclass(frozen=True)
class Network:
    """Bytes that one sweep sends.

    Attributes
    ----------
    broadcast : to all workers: the block of vectors, centre and scale.
    merging : between workers, if no partial is merged where it was made.
    merging_likely : if each merge is done where one of its halves is, and halves lie anywhere.
    home : to the driver.
    """

    broadcast: int = 0
    merging: int = 0
    merging_likely: int = 0
    home: int = 0

    @property
    def most(self) -> int:
        """The sum, at most."""
        return self.broadcast + self.merging + self.home


@dataclass(frozen=True)
class Sizes:
    """Bytes of what moves.

    Attributes
    ----------
    shared : the statistic, with centre and scale.
    partial : of one task, without what it has for each row.
    row : of a partial for each row of A: rows of A Q.
    first_row : moments that the first sweep adds to each row.
    """

    shared: int
    partial: int
    row: int = 0
    first_row: int = 0

    def of(self, rows: int, first: bool = False) -> int:
        """Return the bytes of the partial of this many rows."""
        return self.partial + rows * (self.row + (self.first_row if first else 0))


def sizes_of(plan: Plan, data: Source, statistic: Statistic) -> Sizes:
    """Return the sizes of a statistic and its partials."""
    axis, itemsize = plan.cut.axis, plan.dtype.itemsize
    n_full = data.shape[1 - axis]
    b = statistic.Q.shape[1] if isinstance(statistic, (Product, ProductAndRows)) else 0
    # Mean and scale of each feature; which samples and variants of a file are used.
    shared = itemsize * n_full * b + 16 * data.shape[1] + len(pickle.dumps(data.bare()))
    partial = 8 * n_full * (n_full if isinstance(statistic, Scatter) else b)
    # Moments are four numbers a feature; genotypes also have the missing calls of each sample.
    partial += (32 * n_full if axis == 0 else 0) + (8 * n_full if data.filter is not None else 0)
    return Sizes(shared, partial, itemsize * b if isinstance(statistic, ProductAndRows) else 0, 32 * axis)


def network_of(plan: Plan, sizes: Sizes, workers: int, first: bool = False) -> Network:
    """Return what a sweep sends, by the tree of its merges: each partial goes to one merge, at most once."""
    partitions = plan.cut.partitions
    merging, likely = 0, 0.0
    spans = [(0, len(partitions))]
    while spans:
        halves = halves_of(spans.pop())
        if not halves:
            continue
        spans += halves
        each = [sizes.of(partitions[j - 1][1] - partitions[i][0], first) for i, j in halves]
        merging += sum(each) if workers > 1 else 0
        likely += max(each) * (1 - 1 / workers)
    home = sizes.of(partitions[-1][1] - partitions[0][0], first)
    return Network(sizes.shared * workers, merging, int(likely), home)


def worker_bytes(need: Footprint, threads: int, shared: int) -> int:
    """Return the peak of a worker: its tasks, partials that wait to be merged, and its copy of what is shared."""
    return need.process + threads * (need.task + need.partial) + need.waiting * need.partial + shared


def driver_bytes(need: Footprint, shared: int) -> int:
    """Return the peak of the driver: its arrays, what it hands out, and partials, also as the network has them."""
    return need.process + max(need.driver + shared + (need.waiting + 2) * need.partial, need.after)


@dataclass(frozen=True)
class Rates:
    """Seconds measured on this machine.

    Attributes
    ----------
    threads : tasks at a time during the measurement.
    row, first_row, last_row : of one row of A (a variant, or a sample) and thread: in a sweep, in the first one,
        which also collects moments, and in one for scores or components.
    merge : of one merge.
    driver : after each sweep, in order.
    loading : of libraries, here or in a worker; once.
    task, worker_task : of a task of Dask, for the scheduler and for the worker.
    side : length of the rows that were measured, if shorter than N.
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
    """Seconds of the parts of one sweep."""

    computing: float
    merging: float
    network: float
    scheduling: float
    driver: float

    @property
    def seconds(self) -> float:
        """The sum."""
        return float(sum(asdict(self).values()))


@dataclass(frozen=True)
class Crew:
    """Processes and threads of each, what they send, and whether all share this machine."""

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
        # From the driver to one worker, then from each that has it to two that do not.
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
    """Seconds of each kind of sweep of a run, and of loading libraries."""

    warm: SweepTime | None
    first: SweepTime
    later: SweepTime
    last: SweepTime | None
    loading: float

    def total(self, sweeps: int, warm_sweeps: int = WARM_SWEEPS) -> float:
        """Return the seconds of this many sweeps over all data, after warm ones over a tenth."""
        rest = sweeps - 1 - (self.last is not None)
        seconds = self.first.seconds + max(0, rest) * self.later.seconds + self.loading
        seconds += warm_sweeps * self.warm.seconds if self.warm else 0.0
        return seconds + (self.last.seconds if self.last and sweeps > 1 else 0.0)


def times_of(plan: Plan, rates: Rates, crew: Crew) -> Times:
    """Model the sweeps of a plan."""

    def model(partitions: Sequence[tuple[int, int]], row: float, driver: float) -> SweepTime:
        return sweep_time([stop - start for start, stop in partitions], row, driver, rates, crew)

    partitions, warm = plan.cut.partitions, None
    if isinstance(plan.solver, Krylov) and plan.solver.warm_start:
        warm = model(thinned_partitions(partitions, WARM_STEP), rates.row, rates.mean_driver)
    return Times(
        warm,
        first=model(partitions, rates.first_row, rates.driver[0] if rates.driver else 0.0),
        later=model(partitions, rates.row, rates.mean_driver),
        last=model(partitions, rates.last_row, 0.0) if rates.last_row else None,
        loading=rates.loading,
    )

"""The costs of a run, predicted from its configuration: memory of each process, bytes read and sent, and seconds.

    seconds of a sweep = computing / (workers x threads) + merging + network + scheduling + driver

Rates are measured in a few seconds by the code that the run itself uses, on a piece of the data, or on simulated data
of the same shape if the data do not exist yet.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import dask
from dask.system import CPU_COUNT

from streampca.errors import InputError
from streampca.run.config import Config
from streampca.run.costs.measure import Rates, measure, measure_tasks, statistic_of
from streampca.run.engine import threads_at, threads_of
from streampca.run.fit import FitTask, data_to_fit, fit_job
from streampca.solvers.choose import Plan
from streampca.solvers.krylov import WARM_STEP, WARM_SWEEPS, Krylov
from streampca.sources import Source
from streampca.sources.made_up import made_up
from streampca.sources.thresholds import Thresholds
from streampca.sweep.memory import Budget, show_bytes
from streampca.sweep.merge_tree import halves_of
from streampca.sweep.statistics import Product, ProductAndRows, Scatter, Statistic
from streampca.sweep.sweep import thinned_partitions

FEW_SWEEPS = 4  # of genotypes with clear structure after a warm start, mostly
NETWORK_RATE = 1e9  # bytes/s of each machine's network; assumed
# Ratio of a sweep to the sum of its parts, which are measured one by one: threads and processes wait for each other.
# By scripts/bench/plan on two cores, where predictions without it were 0.7 to 1 of the measured seconds.
WAITING = 1.2
# Seconds of the parts of one sweep.
Parts = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """Bytes that a sweep sends.

    Attributes
    ----------
    shared : to each worker: the statistic, with centre and scale.
    partial : of one task, without what it has for each row.
    row : of a partial for each row of A: rows of A Q.
    """

    shared: int
    partial: int
    row: int = 0

    @classmethod
    def of(cls, plan: Plan, data: Source, statistic: Statistic) -> Sizes:
        """Return the sizes of a statistic and its partials."""
        axis, itemsize = plan.cut.axis, plan.dtype.itemsize
        n_full = data.shape[1 - axis]
        b = statistic.Q.shape[1] if isinstance(statistic, (Product, ProductAndRows)) else 0
        # Mean and scale of each feature; which samples and variants of a file are used.
        shared = itemsize * n_full * b + 16 * data.shape[1] + len(pickle.dumps(data.bare()))
        partial = 8 * n_full * (n_full if isinstance(statistic, Scatter) else b)
        # Moments are four numbers a feature; genotypes also have the missing calls of each sample.
        partial += (32 * n_full if axis == 0 else 0) + (8 * n_full if data.filter is not None else 0)
        return cls(shared, partial, itemsize * b if isinstance(statistic, ProductAndRows) else 0)

    def partial_of(self, rows: int) -> int:
        """Return the bytes of the partial of this many rows."""
        return self.partial + rows * self.row

    def network(self, partitions: Sequence[tuple[int, int]], workers: int) -> dict[str, int]:
        """Return the bytes that one sweep sends, by the tree of its merges.

        broadcast : to all workers.
        merging, merging_likely : between workers, if no partial is merged where it was made, and if each merge is done
            where one of its halves is, and halves lie anywhere.
        home : to the driver.
        most : the sum, at most.
        """
        merging, likely = 0, 0.0
        spans = [(0, len(partitions))]
        while spans:
            halves = halves_of(spans.pop())
            spans += halves
            each = [self.partial_of(partitions[j - 1][1] - partitions[i][0]) for i, j in halves]
            merging += sum(each) if workers > 1 else 0
            likely += max(each, default=0) * (1 - 1 / workers)
        sent = {"broadcast": self.shared * workers, "merging": merging, "home": self.partial_of(partitions[-1][1])}
        return sent | {"most": sum(sent.values()), "merging_likely": int(likely)}


@dataclass(frozen=True)
class Costs:
    """A plan, and its costs on an engine.

    Attributes
    ----------
    engine, workers : its kind, and its worker processes; 0 if threads of the driver do the work.
    row : what a row of A is: a sample, a feature or a variant.
    sizes : of what a sweep sends; None without workers.
    rates : None for models whose sweeps are not timed.
    simulated : whether rates were measured on simulated data.
    """

    plan: Plan
    engine: str
    workers: int
    row: str
    sizes: Sizes | None = None
    rates: Rates | None = None
    simulated: bool = False

    @property
    def worker_bytes(self) -> int:
        """Peak of a worker: its tasks, partials that wait to be merged, and its copy of what is shared."""
        need, threads = self.plan.need, self.plan.threads
        shared = self.sizes.shared if self.sizes else 0
        held = need.process + threads * (need.task + need.partial) + need.waiting * need.partial + shared
        return held if self.workers else 0

    @property
    def driver_bytes(self) -> int:
        """Peak of the driver: its arrays, what it hands out, and partials, also as the network has them."""
        need, shared = self.plan.need, self.sizes.shared if self.sizes else 0
        held = need.process + max(need.driver + shared + (need.waiting + 2) * need.partial, need.after)
        return held if self.workers else self.plan.peak_bytes

    @cached_property
    def network(self) -> dict[str, int] | None:
        """Bytes that one sweep sends; None without workers."""
        return self.sizes.network(self.plan.cut.partitions, self.workers) if self.sizes else None

    @cached_property
    def sweeps(self) -> dict[str, Parts]:
        """Seconds of each kind of sweep: warm (over a tenth), first, later, and last (for the other side)."""
        rates, solver, partitions = self.rates, self.plan.solver, self.plan.cut.partitions
        if rates is None:
            return {}
        found = {
            "first": self.sweep(partitions, rates.first_row, rates.driver),
            "later": self.sweep(partitions, rates.row, rates.driver),
        }
        if isinstance(solver, Krylov) and solver.warm_start:
            found["warm"] = self.sweep(thinned_partitions(partitions, WARM_STEP), rates.row, rates.driver)
        if rates.last_row:
            found["last"] = self.sweep(partitions, rates.last_row, 0.0)
        return found

    def sweep(self, partitions: Sequence[tuple[int, int]], row: float, driver: float) -> Parts:
        """Return the seconds of one sweep, by its parts.

        Partitions come in rounds, one for each thread. Then each thread has merged its own, and the rest is done in a
        tree.

        Parameters
        ----------
        row, driver : seconds of a row and thread, and of the driver after the sweep.
        """
        assert self.rates is not None
        rates, workers, count = self.rates, max(1, self.workers), len(partitions)
        lengths, slots = [stop - start for start, stop in partitions], workers * self.plan.threads
        computing = row * math.fsum(max(lengths[i : i + slots]) for i in range(0, count, slots))
        levels = math.ceil(math.log2(max(1, min(slots, count))))
        left = max(0, count - slots)
        network, scheduling = 0.0, 0.0
        if self.sizes is not None:
            sizes = self.sizes
            # From the driver to one worker, then from each that has it to two that do not.
            handing_out = sizes.shared * (1 + 2 * math.ceil(math.log(workers, 3)))
            crossing = sizes.partial_of(sum(lengths) // count) * (1 - 1 / workers) * (left / workers + levels)
            network = (handing_out + crossing + sizes.partial_of(sum(lengths))) / NETWORK_RATE
            # On one machine the scheduler takes its time from the workers; elsewhere, each worker has its own tasks.
            local = (rates.task + rates.worker_task) / (os.cpu_count() or 1)
            each = local if self.engine == "processes" else rates.task + rates.worker_task / workers
            scheduling = each * (2 * count - 1)
        return {
            "computing": WAITING * computing,
            "merging": WAITING * rates.merge * (left / slots + levels),
            "network": network,
            "scheduling": WAITING * scheduling,
            "driver": WAITING * driver,
        }

    def seconds(self, most_sweeps: int | None = None) -> float:
        """Return the seconds of all sweeps, or if this many are enough; a rough guess without rates."""
        if self.rates is None:
            return self.plan.seconds / max(1, self.workers)
        count = min(self.plan.sweeps, most_sweeps or self.plan.sweeps)
        last = int(count > 1 and "last" in self.sweeps)
        counts = {"first": 1, "later": count - 1 - last, "last": last, "warm": WARM_SWEEPS}
        return self.rates.loading + sum(counts[kind] * sum(parts.values()) for kind, parts in self.sweeps.items())

    def facts(self) -> dict[str, Any]:
        """Return the numbers, for programs."""
        names = ("engine", "workers", "worker_bytes", "driver_bytes")
        facts = self.plan.facts() | {name: getattr(self, name) for name in names}
        facts |= {"seconds": self.seconds(), "calibrated": self.rates is not None}
        if self.network is not None:
            facts |= {"network_bytes": self.network, "assumed": {"network_bytes_per_second": NETWORK_RATE}}
        if self.rates is not None:
            facts |= {
                "measured": asdict(self.rates),
                "sweep_seconds": {k: parts | {"seconds": sum(parts.values())} for k, parts in self.sweeps.items()},
                "warm_sweeps": WARM_SWEEPS if "warm" in self.sweeps else 0,
                "storage_bytes_per_second": self.plan.sweep_bytes / self.sweeps["later"]["computing"],
            }
        if "warm" in self.sweeps:
            facts |= {"few_sweeps": min(FEW_SWEEPS, self.plan.sweeps), "few_seconds": self.seconds(FEW_SWEEPS)}
        return facts

    def lines(self) -> list[tuple[str, str]]:
        """Return the costs for people, as pairs of name and text."""
        lines = dict(self.plan.lines())
        rough = lines.pop("time")
        if self.workers:
            limit = show_bytes(self.plan.limit_bytes)
            where = f" at a time in each of {self.workers} worker{'s' * (self.workers > 1)}"
            lines["partitions"] = lines["partitions"].replace(" at a time", where)
            del lines["memory"]
            lines["memory of a worker"] = f"{show_bytes(self.worker_bytes)} of {limit} allowed"
            lines["memory of the driver"] = f"{show_bytes(self.driver_bytes)} of {limit} allowed"
            rough = f"about {self.seconds():.0f} s by a rough model of the machine: sweeps of this model are not timed"
        lines["reading"] = f"{show_bytes(self.plan.sweep_bytes)} a sweep"
        if self.network is not None and self.sizes is not None:
            sent = {name: show_bytes(amount) for name, amount in self.network.items()}
            between = f"{sent['merging']} at most, {sent['merging_likely']} likely, between them"
            lines["network a sweep"] = (
                f"{sent['broadcast']} to workers ({show_bytes(self.sizes.shared)} each), "
                f"{between if self.network['merging'] else 'nothing between them'}, {sent['home']} to the driver"
            )
        if self.rates is not None:
            rate = self.plan.sweep_bytes / self.sweeps["later"]["computing"]
            lines["reading"] += f"; not limited by storage of {show_bytes(rate)}/s or more"
            lines["measured here"] = self._measured(self.rates)
        lines["time"] = rough if self.rates is None else self._time()
        return [*lines.items(), ("assumed", self._assumed())]

    def _measured(self, rates: Rates) -> str:
        first = f" ({_short(rates.first_row)} in the first sweep)" if isinstance(self.plan.solver, Krylov) else ""
        side = f", with rows of {rates.side} and in proportion" if rates.side else ""
        parts = [
            f"{_short(rates.row)} a {self.row} and thread, {rates.threads} at a time{first}{side}",
            f"{_short(rates.merge)} a merge",
        ]
        if rates.driver:
            parts.append(f"{_short(rates.driver)} in the driver after a sweep")
        if rates.task:
            parts.append(f"{_short(rates.task)} of the scheduler for a task, {_short(rates.worker_task)} of its worker")
        return "; ".join([*parts, f"{_short(rates.loading)} to load libraries"])

    def _time(self) -> str:
        each = {kind: _short(sum(parts.values())) for kind, parts in self.sweeps.items()}
        parts = [f"{_short(value)} {name}" for name, value in self.sweeps["later"].items() if value >= 1e-3]
        text = f"about {_short(self.seconds())} for {self.plan.sweeps} sweeps"
        if "warm" in each:
            text += f" ({_short(self.seconds(FEW_SWEEPS))} for {FEW_SWEEPS}, often enough after a warm start)"
        text += f": a sweep {each['later']} ({', '.join(parts)}); the first {each['first']}"
        if "warm" in each:
            text += f"; {WARM_SWEEPS} over a tenth before it {each['warm']} each"
        if "last" in each and self.plan.sweeps > 1:
            text += f"; the last, for the other side, {each['last']}"
        return text

    def _assumed(self) -> str:
        assumed = ["simulated data" if self.simulated else "data in the file cache"]
        if self.workers and self.engine != "processes":
            assumed.append("workers as fast as this machine")
        if self.network is not None:
            assumed.append(f"a network of {show_bytes(NETWORK_RATE)}/s for each worker")
        if self.engine == "address":
            assumed.append("the workers that the scheduler has now")
        assumed.append("a number of sweeps that depends on the data")
        waiting = ", waiting for workers" if self.workers else ""
        return "; ".join([*assumed, f"opening the data{waiting} and writing the result not counted"])


def _short(seconds: float) -> str:
    """Return a time in readable units: 0.74 ms, 12 s, 3.5 h."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        # Up to ten minutes are seconds.
        if seconds >= size * (10 if unit == "min" else 2 if unit == "h" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def plan_config(config: Config) -> tuple[Plan, Source]:
    """Open the data of a configuration, or make a source of their shape, and plan it, without reading."""
    settings = config.engine
    with dask.config.set(num_workers=threads_of(settings)):
        if config.data.shape is None:
            data: Source = data_to_fit(config)
        else:
            limits = {name: value for name, value in config.filter.given.items() if name in ("maf", "geno", "mind")}
            data = made_up(config.data.path, config.data.shape, Thresholds(**limits))
        job = fit_job(data, config, Budget.of(settings.memory_limit, FitTask.baseline))
        return job.plan(), data


def predict_costs(config: Config) -> Costs:
    """Plan a configuration, and predict its costs."""
    settings: Any = config.engine
    running: list[int] = []
    if settings.kind == "address":
        running = threads_at(settings)
        if not running:
            raise InputError(f"the scheduler at {settings.address} has no workers; start some to plan for them")
        settings = settings.changed(threads=settings.threads or max(running))
        config = replace(config, engine=settings)
    plan, data = plan_config(config)
    workers = 0
    if settings.kind != "threads":
        workers = len(running) or settings.workers or max(1, CPU_COUNT // plan.threads)
    sizes, rates = None, None
    if workers:
        # Workers keep nothing from one sweep to the next.
        plan = replace(plan, resident_bytes=0, peak_bytes=plan.peak_bytes - plan.resident_bytes)
        statistic = statistic_of(plan.solver, data.shape[1 - plan.cut.axis], plan.dtype)
        sizes = None if statistic is None else Sizes.of(plan, data, statistic)
        del statistic
    if plan.timed is not None:
        # Processes share this machine; other workers have a machine each.
        busy = plan.threads * (workers if settings.kind == "processes" else 1)
        rates = measure(plan, data, min(busy, os.cpu_count() or 1))
        if workers:
            rates = replace(rates, **measure_tasks(data))
    row = "sample" if plan.cut.axis == 0 else "variant" if data.is_genotypes else "feature"
    return Costs(plan, settings.kind, workers, row, sizes, rates, config.data.shape is not None)

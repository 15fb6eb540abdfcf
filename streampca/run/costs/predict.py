"""The costs of a run, predicted from its configuration.

Rates are measured in a few seconds by the code that the run itself uses, on a piece of the data, or on simulated data
of the same shape if the data do not exist yet.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

import dask
from dask.system import CPU_COUNT

from streampca.run.config import Config
from streampca.run.costs.measure import measure, measure_tasks, statistic_of
from streampca.run.costs.model import (
    NETWORK_RATE,
    Crew,
    Network,
    Rates,
    Sizes,
    Times,
    driver_bytes,
    network_of,
    sizes_of,
    times_of,
    worker_bytes,
)
from streampca.run.engine import threads_of
from streampca.run.fit import FitTask, fit_job, open_data
from streampca.solvers.choose import Plan
from streampca.solvers.krylov import WARM_SWEEPS, Krylov
from streampca.sources import Source
from streampca.sources.filters import Filter
from streampca.sources.shape_only import on_paper
from streampca.sweep.memory import Budget, show_bytes

# Sweeps that genotypes with clear structure take after a warm start, mostly.
FEW_SWEEPS = 4


@dataclass(frozen=True)
class Costs:
    """A plan, and its costs on an engine.

    Attributes
    ----------
    engine, workers : its kind, and its worker processes; 0 if threads of the driver do the work.
    row : what a row of A is: a sample, a feature or a variant.
    worker_bytes, driver_bytes : peaks.
    sizes, network : of a sweep; None without workers.
    rates, times : None for models whose sweeps are not timed.
    simulated : whether rates were measured on made-up data.
    """

    plan: Plan
    engine: str
    workers: int
    row: str
    worker_bytes: int
    driver_bytes: int
    sizes: Sizes | None
    network: Network | None
    rates: Rates | None
    times: Times | None
    simulated: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of all sweeps."""
        if self.times is None:
            return self.plan.seconds / max(1, self.workers)
        return self.times.total(self.plan.sweeps)

    @property
    def few_seconds(self) -> float:
        """Seconds if `FEW_SWEEPS` are enough."""
        return self.seconds if self.times is None else self.times.total(min(FEW_SWEEPS, self.plan.sweeps))

    def facts(self) -> dict[str, Any]:
        """Return the numbers, for programs."""
        facts = self.plan.facts() | {
            "engine": self.engine,
            "workers": self.workers,
            "worker_bytes": self.worker_bytes,
            "driver_bytes": self.driver_bytes,
            "seconds": self.seconds,
            "calibrated": self.rates is not None,
        }
        if self.network is not None:
            facts["network_bytes"] = asdict(self.network) | {"most": self.network.most}
            facts["assumed"] = {"network_bytes_per_second": NETWORK_RATE}
        if self.rates is not None and self.times is not None:
            facts["measured"] = asdict(self.rates)
            kinds = {name: getattr(self.times, name) for name in ("warm", "first", "later", "last")}
            shown = {name: asdict(kind) | {"seconds": kind.seconds} for name, kind in kinds.items() if kind is not None}
            facts["sweep_seconds"] = shown
            facts["warm_sweeps"] = WARM_SWEEPS if self.times.warm else 0
            if self.times.warm:
                facts["few_sweeps"], facts["few_seconds"] = min(FEW_SWEEPS, self.plan.sweeps), self.few_seconds
            facts["storage_bytes_per_second"] = self.plan.sweep_bytes / self.times.later.computing
        return facts

    def lines(self) -> list[tuple[str, str]]:
        """Return the costs for people, as pairs of name and text."""
        lines = dict(self.plan.lines())
        if self.workers:
            limit = show_bytes(self.plan.limit_bytes)
            where = f" at a time in each of {self.workers} worker{'s' * (self.workers > 1)}"
            lines["partitions"] = lines["partitions"].replace(" at a time", where)
            del lines["memory"], lines["time"]
            lines["memory of a worker"] = f"{show_bytes(self.worker_bytes)} of {limit} allowed"
            lines["memory of the driver"] = f"{show_bytes(self.driver_bytes)} of {limit} allowed"
        lines |= self._reading() | self._network() | self._measured()
        lines["time"] = lines.pop("time", "") if self.times is None and not self.workers else self._time()
        return [*lines.items(), ("assumed", self._assumed())]

    def _reading(self) -> dict[str, str]:
        if self.times is None:
            return {"reading": f"{show_bytes(self.plan.sweep_bytes)} a sweep"}
        rate = self.plan.sweep_bytes / self.times.later.computing
        enough = f"not limited by storage of {show_bytes(rate)}/s or more"
        return {"reading": f"{show_bytes(self.plan.sweep_bytes)} a sweep; {enough}"}

    def _network(self) -> dict[str, str]:
        if self.network is None or self.sizes is None:
            return {}
        sent = self.network
        between = "nothing between them"
        if sent.merging:
            between = f"{show_bytes(sent.merging)} at most, {show_bytes(sent.merging_likely)} likely, between them"
        text = f"{show_bytes(sent.broadcast)} to workers ({show_bytes(self.sizes.shared)} each), {between}, "
        return {"network a sweep": text + f"{show_bytes(sent.home)} to the driver"}

    def _measured(self) -> dict[str, str]:
        if self.rates is None:
            return {}
        rates = self.rates
        once = f" ({_short(rates.first_row)} in the first sweep)" if isinstance(self.plan.solver, Krylov) else ""
        side = f", with rows of {rates.side} and in proportion" if rates.side else ""
        text = f"{_short(rates.row)} a {self.row} and thread, {rates.threads} at a time{once}{side}; "
        text += f"{_short(rates.merge)} a merge"
        text += f"; {_short(rates.mean_driver)} in the driver after a sweep" if rates.driver else ""
        if rates.task:
            text += f"; {_short(rates.task)} of the scheduler for a task, {_short(rates.worker_task)} of its worker"
        return {"measured here": f"{text}; {_short(rates.loading)} to load libraries"}

    def _time(self) -> str:
        if self.times is None:
            return f"about {self.seconds:.0f} s by a rough model of the machine: sweeps of this model are not timed"
        parts = [f"{_short(value)} {name}" for name, value in asdict(self.times.later).items() if value >= 1e-3]
        one = f"a sweep {_short(self.times.later.seconds)} ({', '.join(parts)})"
        warm, last = self.times.warm, self.times.last
        more = f"; the first {_short(self.times.first.seconds)}"
        more += f"; {WARM_SWEEPS} over a tenth before it {_short(warm.seconds)} each" if warm else ""
        more += f"; the last, for the other side, {_short(last.seconds)}" if last and self.plan.sweeps > 1 else ""
        few = f" ({_short(self.few_seconds)} for {FEW_SWEEPS}, often enough after a warm start)" if warm else ""
        return f"about {_short(self.seconds)} for {self.plan.sweeps} sweeps{few}: {one}{more}"

    def _assumed(self) -> str:
        said = ["simulated data" if self.simulated else "data in the file cache"]
        if self.workers and self.engine != "processes":
            said.append("workers as fast as this machine")
        if self.network is not None:
            said.append(f"a network of {show_bytes(NETWORK_RATE)}/s for each worker")
        if self.engine == "address":
            said.append("one worker: the number of workers is not known yet")
        said.append("a number of sweeps that depends on the data")
        waiting = ", waiting for workers" if self.workers else ""
        return "; ".join([*said, f"opening the data{waiting} and writing the result not counted"])


def _short(seconds: float) -> str:
    """Return a time in readable units: 0.74 ms, 12 s, 3.5 h."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        # Up to ten minutes are seconds.
        if seconds >= size * (10 if unit == "min" else 2 if unit == "h" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def plan_config(config: Config) -> tuple[Plan, Source]:
    """Open the data of a configuration and plan it, without reading."""
    settings = config.engine
    with dask.config.set(num_workers=threads_of(settings)):
        data = _data(config)
        job = fit_job(data, config, Budget.of(settings.memory_limit, FitTask.baseline))
        return config.kind.function("plan")(job), data


def predict_costs(config: Config) -> Costs:
    """Plan a configuration, and predict its costs."""
    settings = config.engine
    plan, data = plan_config(config)
    return costs_of(plan, data, settings.kind, _workers(settings, plan.threads), config.data.shape is not None)


def _workers(settings: Any, threads: int) -> int:
    """Return the number of workers of an engine; 0 if the driver does all the work, 1 if it is not known."""
    if settings.kind in ("threads", "address"):
        return int(settings.kind == "address")
    return settings.workers or max(1, CPU_COUNT // threads)


def _data(config: Config) -> Source:
    """Open the data, or make a source of their shape."""
    if config.data.shape is None:
        opened: Source = open_data(config.data, config.filter)
        return opened
    limits = {name: value for name, value in config.filter.given.items() if name in ("maf", "geno", "mind")}
    return on_paper(config.data.path, config.data.shape, Filter(**limits))


def costs_of(plan: Plan, data: Source, kind: str, workers: int, simulated: bool = False) -> Costs:
    """Predict the costs of a plan on an engine.

    Parameters
    ----------
    kind, workers : of the engine; 0 workers for threads of this process.
    simulated : whether the data are made up.
    """
    sizes, network, rates, times = None, None, None, None
    if workers:
        # Workers keep nothing from one sweep to the next.
        plan = replace(plan, resident_bytes=0, peak_bytes=plan.peak_bytes - plan.resident_bytes)
        statistic = statistic_of(plan.solver, data.shape[1 - plan.cut.axis], plan.dtype)
        if statistic is not None:
            sizes = sizes_of(plan, data, statistic)
            network = network_of(plan, sizes, workers)
        del statistic
    if plan.timed is not None:
        # Processes share this machine; other workers have a machine each.
        busy = plan.threads * (workers if kind == "processes" else 1)
        rates = measure(plan, data, min(busy, os.cpu_count() or 1))
        if workers:
            rates = replace(rates, **measure_tasks(data))
        times = times_of(plan, rates, Crew(max(1, workers), plan.threads, sizes, kind == "processes"))
    shared = sizes.shared if sizes else 0
    return Costs(
        plan, kind, workers, "sample" if plan.cut.axis == 0 else "variant" if data.is_genotypes else "feature",
        worker_bytes=worker_bytes(plan.need, plan.threads, shared) if workers else 0,
        driver_bytes=driver_bytes(plan.need, shared) if workers else plan.peak_bytes,
        sizes=sizes, network=network, rates=rates, times=times, simulated=simulated,
    )  # fmt: skip

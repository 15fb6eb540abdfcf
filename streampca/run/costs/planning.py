"""What a run of a configuration would cost: memory of each process, bytes read and sent, and seconds.

    seconds of a sweep = computing / (workers x threads) + merging + network + driver

The constants are measured here and now, in a few seconds, by the code that the run itself would use, on a piece of the
data; or, for data that are not there yet, on made-up ones of the same shape.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from typing import Any

import dask
from dask.system import CPU_COUNT

from streampca.models.pca.fit import resolve
from streampca.models.pca.options import PCAOptions
from streampca.models.ppca.fit import check_memory, component_count, start_options
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions
from streampca.results.fit import FitJob
from streampca.run.config import Config
from streampca.run.costs.measuring import measure, measure_tasks, statistic_of
from streampca.run.costs.sizes import Network, Sizes, driver_bytes, network_of, sizes_of, worker_bytes
from streampca.run.costs.times import NETWORK_RATE, Crew, Rates, Times, times_of
from streampca.run.engine import threads_of
from streampca.run.fit import FitTask, fit_job, open_data
from streampca.solvers.choose import Plan
from streampca.solvers.krylov import WARM_SWEEPS, Krylov
from streampca.sources import Source
from streampca.sources.filters import Filter
from streampca.sources.shape_only import on_paper
from streampca.sweep.memory import Budget, show_bytes

# After a warm start, genotypes with clear structure mostly take no more sweeps than this.
FEW_SWEEPS = 4


@dataclass(frozen=True)
class Costs:
    """A plan, and what it costs on an engine.

    Attributes
    ----------
    engine, workers : its kind, and how many processes work; 0 where the driver's own threads do.
    n_rows, row : rows of A, and what one is called.
    worker_bytes, driver_bytes : peaks.
    network : of a sweep; None without workers.
    rates, times : None for models whose sweeps are not measured here.
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
    on_paper: bool = False

    @property
    def seconds(self) -> float:
        """Seconds of all sweeps."""
        if self.times is None:
            return self.plan.seconds / max(1, self.workers)
        return self.times.total(self.plan.sweeps)

    @property
    def few_seconds(self) -> float:
        """Seconds of as many sweeps as a warm start often leaves."""
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
        """Return what a person wants to know of it, as pairs of name and text."""
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
        enough = f"storage that gives {show_bytes(rate)}/s or more slows nothing"
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
        return {"measured here": f"{text}; {_short(rates.loading)} to load what is needed"}

    def _time(self) -> str:
        if self.times is None:
            return f"about {self.seconds:.0f} s by a rough model of the machine: sweeps of this model are not measured"
        parts = [f"{_short(value)} {name}" for name, value in asdict(self.times.later).items() if value >= 1e-3]
        one = f"a sweep {_short(self.times.later.seconds)} ({', '.join(parts)})"
        warm, last = self.times.warm, self.times.last
        more = f"; the first {_short(self.times.first.seconds)}"
        more += f"; {WARM_SWEEPS} over a tenth before it {_short(warm.seconds)} each" if warm else ""
        more += f"; the last, for the other side, {_short(last.seconds)}" if last and self.plan.sweeps > 1 else ""
        few = f" ({_short(self.few_seconds)} for {FEW_SWEEPS}, which often do after a warm start)" if warm else ""
        return f"about {_short(self.seconds)} for {self.plan.sweeps} sweeps{few}: {one}{more}"

    def _assumed(self) -> str:
        said = ["data that are made up" if self.on_paper else "data that the system has in memory"]
        if self.workers and self.engine != "processes":
            said.append("workers as fast as this machine")
        if self.network is not None:
            said.append(f"a network of {show_bytes(NETWORK_RATE)}/s for each worker")
        if self.engine == "address":
            said.append("one worker: how many there are is not known before")
        said.append("a number of sweeps that the data decide")
        left = "opening the data" + (", waiting for workers" if self.workers else "") + " and writing the result"
        return "; ".join([*said, f"{left} not counted"])


def _short(seconds: float) -> str:
    """Return a time as people write it: 0.74 ms, 12 s, 3.5 h."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        # Up to ten minutes are seconds.
        if seconds >= size * (10 if unit == "min" else 2 if unit == "h" else 1):
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def planned(config: Config) -> Costs:
    """Return the plan of a configuration, and what it costs."""
    settings = config.engine
    with dask.config.set(num_workers=threads_of(settings)):
        data = _data(config)
        job = fit_job(data, config, Budget.of(settings.memory_limit, FitTask.baseline))
        plan = config.kind.function("plan")(job)
    return costs(job, plan, settings.kind, _workers(settings, plan.threads), on_paper=config.data.shape is not None)


def _workers(settings: Any, threads: int) -> int:
    """Return how many workers an engine has; 0 if the driver does it all, 1 where it is not known."""
    if settings.kind in ("threads", "address"):
        return int(settings.kind == "address")
    return settings.workers or max(1, CPU_COUNT // threads)


def _data(config: Config) -> Source:
    """Open the data, or make a source of the shape that they will have."""
    if config.data.shape is None:
        opened: Source = open_data(config.data, config.filter)
        return opened
    limits = {name: value for name, value in config.filter.given.items() if name in ("maf", "geno", "mind")}
    return on_paper(config.data.path, config.data.shape, Filter(**limits))


def costs(job: FitJob, plan: Plan, kind: str, workers: int, on_paper: bool = False) -> Costs:
    """Count and measure what a job costs on an engine with so many workers; 0 for threads of this process."""
    data, need = job.source, plan.need
    options = job.options if isinstance(job.options, PCAOptions) else None
    if isinstance(job.options, (PPCAOptions, FactorAnalysisOptions)):
        em = check_memory(data, job.options, job.memory_limit)
        need = max(need, em.need, key=lambda each: each.peak(plan.threads))
        if job.options.method == "closed":
            options = start_options(job.options, "mean", component_count(job.options.n_components, data))
    if workers:
        # Workers keep nothing from one sweep to the next.
        plan = replace(plan, resident_bytes=0, peak_bytes=plan.peak_bytes - plan.resident_bytes)
    n_full = data.shape[1 - plan.cut.axis]
    statistic = statistic_of(plan.solver, n_full, plan.dtype) if job.kind != "kpca" else None
    sizes = sizes_of(plan, data, statistic) if statistic is not None and workers else None
    del statistic
    rates, times = None, None
    if options is not None:
        asked = resolve(options, data)
        # Processes share this machine; elsewhere, each worker has a machine of its own.
        busy = plan.threads * (workers if kind == "processes" else 1)
        k = asked.n_components if isinstance(asked.n_components, int) else 16
        rates = measure(plan, data, asked.scale, asked.missing, min(busy, os.cpu_count() or 1), k)
        if workers:
            rates = replace(rates, **measure_tasks(data))
        times = times_of(plan, rates, Crew(max(1, workers), plan.threads, sizes, kind == "processes"))
    shared = sizes.shared if sizes else 0
    return Costs(
        plan, kind, workers, _row_name(data, plan.cut.axis),
        worker_bytes=worker_bytes(need, plan.threads, shared) if workers else 0,
        driver_bytes=driver_bytes(need, shared) if workers else plan.peak_bytes,
        sizes=sizes,
        network=network_of(plan, sizes, workers) if sizes else None,
        rates=rates,
        times=times,
        on_paper=on_paper,
    )  # fmt: skip


def _row_name(data: Source, axis: int) -> str:
    if axis == 0:
        return "sample"
    return "variant" if data.is_genotypes else "feature"

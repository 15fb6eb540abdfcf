"""The choice of a solver and of the partitions: from shape, k, memory and cost, before any data are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

import numpy as np

from streampca.errors import InputError, listed
from streampca.solvers import SOLVERS
from streampca.solvers.cost import Cost, Problem
from streampca.sweep.memory import SweepPlan, footprint, plan_sweeps, show_bytes, threads_that_fit

# Costs are compared for this many tasks at a time: the choice must not depend on the number of workers, or the same
# input would not give the same bits.
NOMINAL_THREADS = 4


@dataclass(frozen=True)
class Timed:
    """Options of sweeps that a calibration can time: scale, rule for missing values, number of components."""

    scale: str | None
    missing: str
    n_components: int


@dataclass(frozen=True, kw_only=True)
class Plan(SweepPlan):
    """Sweeps with a solver, and their cost.

    Attributes
    ----------
    solver, name, reason : the solver with its parameters, its name, and why it was chosen.
    sweep_bytes, sweeps : bytes of one read of all data, and the expected number of reads.
    seconds : a rough estimate.
    timed : options of the sweeps, if these are the solver's alone.
    """

    solver: Any
    name: str
    reason: str
    sweep_bytes: int
    sweeps: int
    seconds: float
    timed: Timed | None = None

    def lines(self) -> list[tuple[str, str]]:
        """Return the plan for people, as pairs of name and text."""
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


def plan(
    problem: Problem, asked: str, solvers: Mapping[str, str] = SOLVERS, *, dtype: np.dtype[Any] | None = None,
    extra_sweeps: int = 0, also: str = "",
) -> Plan:  # fmt: skip
    """Plan the solver and the axis that take the least time within the memory limit.

    Raises `MemoryLimitError` if none fits.

    Parameters
    ----------
    problem : components to compute; each axis that the source can be cut along is tried.
    asked : name of a solver, or "auto".
    solvers : to choose from, as in `streampca.solvers`.
    dtype : of tiles; that of the source by default.
    extra_sweeps : reads that follow the fit, as for scores.
    also : what the message adds to solver and shape.
    """
    source, budget = problem.source, problem.budget
    classes = [resolve_name(f"streampca.solvers.{place}") for place in dict.fromkeys(solvers.values())]
    known: list[Cost] = [c.cost(replace(problem, axis=axis)) for axis in source.cut_axes for c in classes]
    costs = [cost for cost in known if (not cost.on_request if asked == "auto" else cost.name == asked)]
    if not costs:
        others = listed(repr(name) for name in ("auto", *(cost.name for cost in known)))
        raise InputError(f"{source.name}: solver={asked!r} is not available for these data; use {others}")
    needs = [footprint(source, cost.needs, budget) for cost in costs]

    def seconds(i: int) -> float:
        cut, need = needs[i]
        most = min(NOMINAL_THREADS, len(cut.partitions))
        return costs[i].seconds / threads_that_fit(need, budget.limit, most, costs[i].name)

    fitting = [i for i, (_, need) in enumerate(needs) if need.peak(1) <= budget.limit]
    best = costs[min(fitting, key=seconds) if fitting else min(range(len(costs)), key=lambda i: needs[i][1].peak(1))]
    # Cut along features, the fit itself computes the scores.
    sweeps = best.sweeps + (extra_sweeps if best.needs.axis == 0 else 0)
    what = f"{source.name}: {best.name} on {' x '.join(map(str, source.shape))}{also}"
    planned = plan_sweeps(source, best.needs, budget, what, sweeps=sweeps, dtype=dtype)
    return Plan(
        **vars(planned), solver=best.solver, name=best.name, reason=best.reason if asked == "auto" else "as asked",
        sweep_bytes=source.n_bytes, sweeps=sweeps, seconds=best.seconds / planned.threads,
    )  # fmt: skip

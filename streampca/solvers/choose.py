"""The choice of a solver and of the partitions: from shape, k, memory and cost, before any data are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.errors import InputError
from streampca.solvers.cost import Cost, Problem
from streampca.solvers.dense import Dense
from streampca.solvers.krylov import Krylov
from streampca.solvers.power import Power
from streampca.sources import Source
from streampca.sweep.memory import Budget, SweepPlan, footprint, plan_sweeps, show_bytes, threads_that_fit
from streampca.sweep.scaling import check_choice

SOLVERS = ("auto", "covariance", "gram", "krylov", "power")
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
    sweep_bytes, sweeps : bytes of one read of all data, and the number of reads expected.
    seconds : a rough guess.
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
    source: Source, k: int | None, solver: str, tol: float, budget: Budget, seed: Any,
    keep_scatter: bool = False, extra_sweeps: int = 0,
) -> Plan:  # fmt: skip
    """Choose a solver for k leading components (None: as many as a share of the variance takes).

    Parameters
    ----------
    keep_scatter : whether A'A is kept, to merge fits.
    extra_sweeps : reads that follow the fit, as for scores.
    """
    check_choice("solver", solver, SOLVERS)
    problems = [Problem(source, axis, k, tol, seed, budget, keep_scatter) for axis in source.cut_axes]
    costs = [kind.cost(problem) for problem in problems for kind in (Dense, Krylov, Power)]
    # The power method needs the least memory and by far the most sweeps: only on request.
    costs = [cost for cost in costs if (cost.name != "power" if solver == "auto" else cost.name == solver)]
    if not costs:
        raise InputError(f"solver={solver!r} is not for genotypes; use 'auto', 'gram', 'krylov' or 'power'")
    return cheapest(costs, source, budget, solver, extra_sweeps=extra_sweeps)


def cheapest(
    costs: Sequence[Cost], source: Source, budget: Budget, asked: str, *, dtype: np.dtype[Any] | None = None,
    extra_sweeps: int = 0, also: str = "",
) -> Plan:  # fmt: skip
    """Plan the solver that takes the least time within the memory limit; raise `MemoryLimitError` if none fits.

    Parameters
    ----------
    dtype : of tiles; that of the source unless given.
    asked : the solver that was asked for.
    extra_sweeps : reads that follow the fit, as for scores.
    also : what the message adds to solver and shape.
    """
    needs = [footprint(source, cost.needs, budget) for cost in costs]

    def seconds(i: int) -> float:
        cut, need = needs[i]
        most = min(NOMINAL_THREADS, len(cut.partitions))
        return costs[i].seconds / threads_that_fit(need, budget.limit, most, costs[i].name)

    fitting = [i for i, (_, need) in enumerate(needs) if need.peak(1) <= budget.limit]
    best = costs[min(fitting, key=seconds) if fitting else min(range(len(costs)), key=lambda i: needs[i][1].peak(1))]
    # Cut along features, the fit itself gives what these sweeps are for.
    sweeps = best.sweeps + (extra_sweeps if best.needs.axis == 0 else 0)
    what = f"{source.name}: {best.name} on {' x '.join(map(str, source.shape))}{also}"
    planned = plan_sweeps(source, best.needs, budget, what, sweeps=sweeps, dtype=dtype)
    return Plan(
        **vars(planned), solver=best.solver, name=best.name, reason=best.reason if asked == "auto" else "as asked",
        sweep_bytes=source.n_bytes, sweeps=sweeps, seconds=best.seconds / planned.threads,
    )  # fmt: skip


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

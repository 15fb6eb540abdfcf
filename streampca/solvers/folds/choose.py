"""The choice of a solver for the components of all training sets of a cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca.errors import InputError
from streampca.solvers.choose import Plan, cheapest
from streampca.solvers.cost import Problem
from streampca.solvers.folds.dense import FoldGram, FoldScatters
from streampca.solvers.folds.krylov import FoldKrylov
from streampca.sources import Source
from streampca.sweep.memory import Budget
from streampca.sweep.scaling import check_choice

FOLD_SOLVERS = ("auto", "covariance", "gram", "krylov")


def fold_plan(
    source: Source, k: int, n_folds: int, n_others: int, solver: str, tol: float, budget: Budget, seed: Any, fills: bool
) -> Plan:
    """Choose a solver for k components of `n_folds` + 1 training sets.

    Parameters
    ----------
    n_others : covariates and targets.
    fills : whether missing values may be replaced by the mean.
    """
    check_choice("solver", solver, FOLD_SOLVERS)
    costs = []
    for axis in source.cut_axes:
        problem = Problem(source, axis, k, tol, seed, budget, n_folds=n_folds, n_others=n_others, fills=fills)
        costs += [FoldGram.cost(problem) if axis == 1 else FoldScatters.cost(problem), FoldKrylov.cost(problem)]
    costs = [cost for cost in costs if solver in ("auto", cost.name)]
    if not costs:
        raise InputError(f"solver={solver!r} is not for genotypes; use 'auto', 'gram' or 'krylov'")
    # Scores of a regression are differences of sums: float64 throughout.
    dtype, also = np.dtype(np.float64), f" with {n_folds} folds" if n_folds else ""
    return cheapest(costs, source, budget, solver, dtype=dtype, also=also)

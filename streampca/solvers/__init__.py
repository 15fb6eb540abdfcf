"""Solvers: one algorithm a file, each a frozen record of its parameters that loops over sweeps.

A new solver takes its own file and one line below. It has `cost(problem)`, a class method that returns a `Cost`, and
`solve(sweeps, wanted)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

# Name of each solver, and the class, which is imported when it is planned: options list names without loading NumPy.
SOLVERS = {"covariance": "dense:Dense", "gram": "dense:Dense", "krylov": "krylov:Krylov", "power": "power:Power"}
# The same for all training sets of a cross-validation at once.
FOLD_SOLVERS = {
    "covariance": "folds.dense:FoldDense",
    "gram": "folds.dense:FoldDense",
    "krylov": "folds.krylov:FoldKrylov",
}

if TYPE_CHECKING:
    Solver = str
    FoldSolver = str
else:
    Solver = Literal["auto", *SOLVERS]
    FoldSolver = Literal["auto", *FOLD_SOLVERS]

"""Options of principal component regression."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from streampca.solvers import FoldSolver
from streampca.validation import Between, Convert, Count, FieldScale, Limits, Options, Seed, Text, option, plain_number


def _folds(value: Any) -> Any:
    """Take None, as estimators may be given it, for no cross-validation."""
    return 0 if value is None else plain_number(value)


class PCROptions(Options):
    """Principal component regression."""

    n_components: Count | None = option(default=None, description="Maximum number of components; up to 20 by default.")
    cv: Annotated[Literal[0] | Annotated[int, Limits(ge=2)], Convert(_folds)] = option(
        default=5, description="Folds of the cross-validation that chooses the number of components; 0: use all."
    )
    scale: FieldScale = option(default="auto", description="As for pca; scales are those of all samples.")
    missing: Literal["auto", "error", "mean"] = option(default="auto", description="As for pca.")
    solver: FoldSolver = option(default="auto", description="Eigenvalue solver.")
    # Certificates of this size change predictions in the sixth digit or later.
    tol: Between = option(default=1e-6, description="Largest certificate (relative residual) of a component.")
    random_state: Seed = option(default=0, description="Seed of the folds and of the random start.")


class PCRTableOptions(PCROptions):
    """Principal component regression on columns of tables."""

    target: Text = option(
        description="Targets: columns of a table, as traits.tsv:height,bmi.", examples=("traits.tsv:height",)
    )
    covariates: Text | None = option(
        default=None, description="Covariates that are always in the regression: columns, as traits.tsv:age,sex."
    )

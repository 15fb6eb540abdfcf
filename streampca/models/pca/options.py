"""Options of PCA."""

from __future__ import annotations

from typing import Annotated, Literal

from streampca.solvers import Solver
from streampca.validation import Between, Convert, Count, FieldScale, Options, Seed, option, plain_number


class PCAOptions(Options):
    """Principal component analysis."""

    n_components: Annotated[Count | Between | Literal["all"] | None, Convert(plain_number)] = option(
        default=None, description="Number of components, share of variance such as 0.9, or all."
    )
    scale: FieldScale = option(
        default="auto",
        description="unit: divide by the standard deviation; patterson: by sqrt(2p(1-p)); eigenstrat: the same with "
        "p of Price et al.; coslat: weight by latitude; auto: patterson for genotypes, else none.",
    )
    missing: Literal["auto", "error", "mean", "lsq"] = option(
        default="auto",
        description="Missing values; mean: replace by the mean; lsq: also, but scores are by least squares over the "
        "values that a sample has; auto: mean for genotypes, else error.",
    )
    solver: Solver = option(default="auto", description="Eigenvalue solver.")
    tol: Between = option(default=1e-3, description="Largest certificate (relative residual) of a component.")
    certificate: bool | Literal["exact"] = option(
        default=True,
        description="How rounding is measured; true: random probes; exact: float64 products; false: not at all.",
    )
    resolve: Literal["signal", "all"] = option(
        default="signal",
        description="Components that must reach tol; signal: those that can be distinguished from noise, others 0.05.",
    )
    random_state: Seed = option(default=0, description="Seed of the random start.")

    def most_components(self, shape: tuple[int, int]) -> int:
        """Return the largest n_components for data of this shape."""
        return min(shape)

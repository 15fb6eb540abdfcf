"""Options of PCA."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from streampca.validation import Between, Count, FieldScale, Options, Seed, Solver, plain_number


class PCAOptions(Options):
    """Principal component analysis."""

    n_components: Annotated[Count | Between | Literal["all"] | None, BeforeValidator(plain_number)] = Field(
        default=None, description="Number of components, share of variance such as 0.9, or all."
    )
    scale: FieldScale = Field(
        default="auto",
        description="unit: divide by the standard deviation; patterson: by sqrt(2p(1-p)); coslat: weight by latitude; "
        "auto: patterson for genotypes, else none.",
    )
    missing: Literal["auto", "error", "mean"] = Field(
        default="auto", description="Missing values; mean: replace by the mean; auto: mean for genotypes, else error."
    )
    solver: Solver = Field(default="auto", description="Eigenvalue solver.")
    tol: Between = Field(default=1e-3, description="Largest certificate (relative residual) of a component.")
    certificate: bool | Literal["exact"] = Field(
        default=True,
        description="How rounding is measured; true: random probes; exact: float64 products; false: not at all.",
    )
    random_state: Seed = Field(default=0, description="Seed of the random start.")

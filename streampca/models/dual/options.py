"""Options of dual probabilistic PCA."""

from __future__ import annotations

from pydantic import Field

from streampca.validation import Between, Count, FieldScale, Options, Seed, Solver


class DualPPCAOptions(Options):
    """Dual probabilistic PCA: a Gaussian process per feature with a linear kernel over latent points."""

    n_components: Count | None = Field(default=None, description="Number of latent dimensions.")
    scale: FieldScale = Field(
        default="auto",
        description="unit: divide by the standard deviation; patterson: by sqrt(2p(1-p)); coslat: weight by latitude; "
        "auto: patterson for genotypes, else none.",
    )
    solver: Solver = Field(default="auto", description="Eigenvalue solver.")
    tol: Between = Field(default=1e-3, description="Largest certificate (relative residual) of a component.")
    random_state: Seed = Field(default=0, description="Seed of the random start.")

"""Options of dual probabilistic PCA."""

from __future__ import annotations

from streampca.solvers import Solver
from streampca.validation import Between, Count, FieldScale, Options, Seed, option


class DualPPCAOptions(Options):
    """Dual probabilistic PCA: a Gaussian process per feature with a linear kernel over latent points."""

    n_components: Count | None = option(default=None, description="Number of latent dimensions.")
    scale: FieldScale = option(
        default="auto",
        description="unit: divide by the standard deviation; patterson: by sqrt(2p(1-p)); eigenstrat: the same with "
        "p of Price et al.; coslat: weight by latitude; auto: patterson for genotypes, else none.",
    )
    solver: Solver = option(default="auto", description="Eigenvalue solver.")
    tol: Between = option(default=1e-3, description="Largest certificate (relative residual) of a component.")
    random_state: Seed = option(default=0, description="Seed of the random start.")

    def most_components(self, shape: tuple[int, int]) -> int:
        """Return the largest n_components for data of this shape."""
        return min(shape) - 1

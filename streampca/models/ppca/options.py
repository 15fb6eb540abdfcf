"""Options of probabilistic PCA and factor analysis."""

from __future__ import annotations

from typing import ClassVar, Literal

from streampca.solvers import Solver
from streampca.validation import Between, Count, CountOrAuto, Options, Scale, Seed, option


class _Shared(Options):
    """Options that both models share."""

    # Whether each feature has its own noise variance.
    per_feature_noise: ClassVar[bool] = False

    n_components: CountOrAuto = option(default=None, description="Number of components, or auto: choose by criterion.")
    scale: Scale = option(
        default="auto",
        description="unit: divide by the standard deviation; patterson: by sqrt(2p(1-p)); auto: patterson for "
        "genotypes, else none.",
    )
    missing: Literal["model", "error"] = option(
        default="model", description="Missing values; model: exclude them from the likelihood."
    )
    solver: Solver = option(default="auto", description="Solver of the principal components that the fit starts from.")
    tol: Between = option(default=1e-3, description="EM stops when the subspace turns by less than this (sine).")
    accelerate: bool = option(default=True, description="Whether EM takes longer steps (Anderson acceleration).")
    random_state: Seed = option(default=0, description="Seed of the random start and of held-out values.")

    def most_components(self, shape: tuple[int, int]) -> int:
        """Return the largest n_components for data of this shape."""
        return min(shape) - 1


class PPCAOptions(_Shared):
    """Probabilistic PCA."""

    method: Literal["auto", "closed", "em"] = option(
        default="auto", description="closed: closed form, complete data only; em: EM; auto: em if values are missing."
    )
    criterion: Literal["auto", "evidence", "bic", "heldout"] = option(
        default="auto",
        description="Criterion of n_components: auto; auto: evidence for complete data with n > d, else heldout.",
    )
    max_iter: Count = option(default=200, description="Maximum number of EM iterations.")


class FactorAnalysisOptions(_Shared):
    """Factor analysis: like probabilistic PCA, with a noise variance per feature."""

    per_feature_noise: ClassVar[bool] = True

    method: Literal["auto", "em"] = option(default="auto", description="EM; there is no closed form.")
    criterion: Literal["auto", "heldout"] = option(default="auto", description="Criterion of n_components: auto.")
    max_iter: Count = option(default=1000, description="Maximum number of EM iterations.")


LatentOptions = PPCAOptions | FactorAnalysisOptions

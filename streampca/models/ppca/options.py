"""Options of probabilistic PCA and factor analysis."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from streampca.validation import Between, Count, CountOrAuto, Options, Scale, Seed, Solver


class _LatentOptions(Options):
    """Options that both models share."""

    # Whether each feature has its own noise variance.
    per_feature_noise: ClassVar[bool] = False

    n_components: CountOrAuto = Field(default=None, description="Number of components, or auto: choose by criterion.")
    scale: Scale = Field(
        default="auto",
        description="unit: divide by the standard deviation; patterson: by sqrt(2p(1-p)); auto: patterson for "
        "genotypes, else none.",
    )
    missing: Literal["model", "error"] = Field(
        default="model", description="Missing values; model: exclude them from the likelihood."
    )
    solver: Solver = Field(default="auto", description="Solver of the principal components that the fit starts from.")
    tol: Between = Field(default=1e-3, description="EM stops when the subspace turns by less than this (sine).")
    accelerate: bool = Field(default=True, description="Whether EM takes longer steps (Anderson acceleration).")
    random_state: Seed = Field(default=0, description="Seed of the random start and of held-out values.")


class PPCAOptions(_LatentOptions):
    """Probabilistic PCA."""

    method: Literal["auto", "closed", "em"] = Field(
        default="auto", description="closed: closed form, complete data only; em: EM; auto: em if values are missing."
    )
    criterion: Literal["auto", "evidence", "bic", "heldout"] = Field(
        default="auto",
        description="Criterion of n_components: auto; auto: evidence for complete data with n > d, else heldout.",
    )
    max_iter: Count = Field(default=200, description="Maximum number of EM iterations.")


class FactorAnalysisOptions(_LatentOptions):
    """Factor analysis: like probabilistic PCA, with a noise variance per feature."""

    per_feature_noise: ClassVar[bool] = True

    method: Literal["auto", "em"] = Field(default="auto", description="EM; there is no closed form.")
    criterion: Literal["auto", "heldout"] = Field(default="auto", description="Criterion of n_components: auto.")
    max_iter: Count = Field(default=1000, description="Maximum number of EM iterations.")

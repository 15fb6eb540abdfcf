"""The fitted record of principal component regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from streampca._typing import Array
from streampca.models.pca.record import PCAFit
from streampca.models.record import Attribute, Variable

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True, kw_only=True)
class PCRFit(PCAFit):
    """A fitted principal component regression, on the components of the used samples that have variance, k.

    Scales are those of all samples. Means are those of the used samples, or of all samples for genotypes and for
    missing values at the mean.

    Attributes
    ----------
    names, covariate_names : of targets (q) and covariates (c).
    chosen : (q,) number of components used for each target.
    score_coefficient : (q, k) of the scores, zero for components that are not used.
    covariate_coefficient : (q, c).
    centre : (q,) value of the target where all scores and covariates are zero.
    cv_error, cv_error_deviation : (q, k + 1) mean over the folds of the mean squared error of held-out samples, for
        m = 0 .. k, and its standard error; None without folds.
    cv_r2 : (q, k + 1) 1 - squared errors of held-out samples / squares about the mean; None without folds.
    r2 : (q, k + 1) share of the variance explained in the used samples.
    folds : (n,) fold of each sample, -1 for samples that are not used.
    one_target : whether y had one dimension.
    covariate_kinds : categories of each covariate that was text, in JSON.
    others : as for `PCAFit`.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *PCAFit.VARIABLES,
        Variable("target", "target", of="names"),
        Variable("covariate", "covariate", of="covariate_names"),
        Variable("coefficient", "target F", "of each feature, in units of the data"),
        Variable("intercept", "target", "of features and covariates in units of the data"),
        Variable("centre", "target", "value of the target where all scores and covariates are zero"),
        Variable("score_coefficient", "target component", "of each score; 0 for components that are not used"),
        Variable("covariate_coefficient", "target covariate"),
        Variable("chosen", "target", "number of components used: where cv_error is smallest"),
        Variable(
            "cv_error", "target m",
            "mean over the folds of the mean squared error of held-out samples, with m components",
        ),
        Variable("cv_error_deviation", "target m", "standard error of cv_error over the folds"),
        Variable(
            "cv_r2", "target m",
            "1 - squared errors of held-out samples / squares about the mean, with m components",
        ),
        Variable("r2", "target m", "share of the variance explained in the used samples, with m components"),
        Variable("fold", "S", "of each sample; -1 for samples that are not used", "folds"),
    )  # fmt: skip
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *PCAFit.ATTRIBUTES,
        Attribute("n_folds", int),
        Attribute("one_target", bool),
        Attribute("covariate_kinds", str),
    )

    names: tuple[str, ...]
    covariate_names: tuple[str, ...]
    chosen: Array
    score_coefficient: Array
    covariate_coefficient: Array
    centre: Array
    r2: Array
    folds: Array
    n_folds: int
    cv_error: Array | None = None
    cv_error_deviation: Array | None = None
    cv_r2: Array | None = None
    one_target: bool = False
    covariate_kinds: str = "{}"

    @property
    def coefficient(self) -> Array:
        """(q, d) of the features, in units of the data: V beta_m / scale."""
        lifted = self.score_coefficient @ self.components
        return np.asarray(lifted if self.scale is None else lifted / self.scale)

    @property
    def intercept(self) -> Array:
        """(q,) of features and covariates in units of the data."""
        return np.asarray(self.centre - self.coefficient @ self.mean)

    @classmethod
    def fields_in(cls, dataset: xarray.Dataset) -> dict[str, Any]:
        """Return the fields that a Dataset has; there may be no covariates."""
        none = {"covariate_names": (), "covariate_coefficient": np.empty((dataset.sizes["target"], 0))}
        return none | super().fields_in(dataset)

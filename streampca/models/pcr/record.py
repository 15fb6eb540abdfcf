"""The fitted record of principal component regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca._typing import Array
from streampca.models.pca.record import PCAFit


@dataclass(frozen=True)
class PCRFit:
    """A fitted principal component regression.

    Attributes
    ----------
    pca : components of the used samples that have variance, k. Scales are those of all samples; means are those of the
        used samples, or of all samples for genotypes and for missing values at the mean.
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
    """

    pca: PCAFit
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

    @property
    def coefficient(self) -> Array:
        """(q, d) of the features, in units of the data: V beta_m / scale."""
        lifted = self.score_coefficient @ self.pca.components
        return np.asarray(lifted if self.pca.scale is None else lifted / self.pca.scale)

    @property
    def intercept(self) -> Array:
        """(q,) of features and covariates in units of the data."""
        return np.asarray(self.centre - self.coefficient @ self.pca.mean)

    @property
    def genotypes(self) -> bool:
        """Whether the features are variants."""
        return self.pca.genotypes

    def at_chosen(self, values: Array) -> Array:
        """Return values for m = 0 .. k (q, k + 1) at the chosen number of components (q,)."""
        return np.asarray(np.take_along_axis(values, self.chosen[:, None], axis=1)[:, 0])

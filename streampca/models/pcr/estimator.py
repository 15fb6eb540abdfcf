"""The `PCR` estimator: principal component regression with cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.base import Estimator, is_dask, labelled_like, matched, scaled_block
from streampca.models.pcr.fit import fit_pcr, predict_targets, predicted_by_covariates
from streampca.models.pcr.options import PCROptions
from streampca.models.pcr.record import PCRFit
from streampca.models.pcr.targets import Targets
from streampca.progress import Progress
from streampca.sources import Axis
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.sweep import lazy_rows


@dataclass(repr=False, eq=False)
class PCR(RegressorMixin, Estimator[PCRFit]):  # type: ignore[misc]
    """Principal component regression: least squares of y on the first m scores, lifted to the features.

        y = a + c'gamma + z_m'beta_m + error,   z_m = V_m'x,   beta = V_m beta_m

    for x centred (and scaled) and covariates c, if any. The number of components m is chosen for each target by
    cross-validation among 0 .. n_components: the training set of each fold has its own mean and components, as if
    fitted alone, but all come from the same sweeps. Few features or few samples take one or two sweeps in all; larger
    data take those of block Lanczos for the slowest training set, and one or two more.

    Scales of features (and means that replace missing values) are those of all samples: they do not depend on y.

    Parameters
    ----------
    n_components : int or None
        Maximum number of components; None for 20, or fewer if there are fewer. With cv=0 all are used, except
        components without variance.
    cv : int or None
        Number of random folds; 0 or None for no cross-validation.
    scale, missing, memory_limit, progress
        As for `PCA`.
    solver : "auto", "covariance", "gram" or "krylov"
        As for `PCA`.
    tol : float
        Largest certificate allowed. The default requires float64 tiles.
    random_state : int, RandomState or None
        Seed of the folds and of the random start of "krylov".

    Attributes
    ----------
    coef_ : (n_features,) or (n_targets, n_features), in units of the data. If y has one dimension, this and the
        following attributes have no axis of targets.
    intercept_, covariate_coef_ : (n_targets,), (n_targets, n_covariates).
    n_components_ : (n_targets,) number of components used.
    score_coef_ : (n_targets, k) coefficients of the scores, zero beyond n_components_.
    cv_mse_, cv_mse_deviation_ : (n_targets, k + 1) mean over the folds of the mean squared error of held-out samples,
        for m = 0 .. k components, and its standard error; None without folds. The smallest is chosen.
    cv_r2_ : (n_targets, k + 1) 1 - squared errors of held-out samples / squares about the mean; None without folds.
    r2_ : (n_targets, k + 1) share of the variance of y explained in the fitted samples.
    folds_ : (n_samples,) fold of each sample, -1 for unused samples, with missing targets or covariates.
    components_, explained_variance_, explained_variance_ratio_, certificate_ : as for `PCA`, of the used samples.
    mean_, scale_ : (n_features,) of all samples; scale_ is None without scaling.
    converged_, advice_, notes_, n_samples_, n_sweeps_ : as for `PCA`, of the used samples.
    result_ : xarray.Dataset of all this, labelled like the data.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 5)) * [9, 5, 3, 2, 1]
    >>> y = X[:, 0] - X[:, 1] + rng.normal(size=1000)
    >>> model = streampca.PCR().fit(X, y)
    >>> model.coef_[:2].round(1).tolist(), round(float(model.cv_r2_.max()), 2), model.n_sweeps_
    ([1.0, -1.0], 0.99, 1)
    """

    _options = PCROptions
    _record = PCRFit
    _shown = ("components", "explained_variance", "explained_variance_ratio", "certificate")

    n_components: int | None = None
    _: KW_ONLY
    cv: int | None = 5
    scale: str | None = "auto"
    missing: str = "auto"
    solver: str = "auto"
    tol: float = 1e-6
    memory_limit: str | int | None = None
    random_state: Any = 0
    progress: Progress | None = None

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, covariates: Any = None, *, folds: Any = None, sample_dims: Sequence[str] | None = None
    ) -> PCR:
        """Fit the regression of y, of one or more targets, on the components of X.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        y : (n_samples,) or (n_samples, n_targets). A sample with NaN here or in the covariates is not used.
        covariates : (n_samples,) or (n_samples, n_covariates), which are always in the regression.
        folds : (n_samples,) the fold of each sample, from 0 on, or -1 not to use it; instead of `cv` folds at random.
        sample_dims : dimensions of labelled data that make up the samples; the first one by default.
        """
        if y is None:
            raise InputError("PCR requires y to be passed, but the target y is None; give a number per sample")
        source = self._source(X, sample_dims, reset=True)
        targets = Targets.of(y, covariates, folds, source.shape[0])
        fitted, sweeps = fit_pcr(source, self._checked_options(), targets, **self._how)
        self._keep(fitted, source, sweeps.matrix.source)
        return self

    def predict(self, X: Any, covariates: Any = None) -> Any:
        """Return the targets of samples: (n_samples,) or (n_samples, n_targets), as y was; one sweep.

        Dask in, lazy Dask out; xarray in, xarray out. Variants of genotypes are matched by id and alleles.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        covariates : of these samples, as they were given to `fit`.
        """
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        if is_dask(X) and not fitted.genotypes:
            fitted.check_features(source)
            block = partial(_block_targets, fitted=fitted, missing=self._missing)
            values = lazy_rows(X.reshape(source.shape), block, len(fitted.names), np.float64)
            values = values + predicted_by_covariates(fitted, covariates, source.shape[0])
            return values[:, 0] if fitted.one_target else values
        match = matched(source, self._labels) if fitted.genotypes else None
        values = predict_targets(source, fitted, covariates, match, self._missing, **self._how)
        if fitted.one_target:
            return labelled_like(X, values[:, 0], source.samples, Axis((), ()))
        names = {"target": (("target",), list(fitted.names))}
        return labelled_like(X, values, source.samples, Axis(("target",), (len(fitted.names),), names))

    def score(self, X: Any, y: Any, covariates: Any = None) -> float:
        """Return R^2 of the predictions, the mean over the targets; samples without a target do not count.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        y : their targets, as they were given to `fit`.
        covariates : of these samples, as they were given to `fit`.
        """
        predicted = np.asarray(self.predict(X, covariates))
        Y = np.asarray(y, np.float64)
        known = np.isfinite(np.column_stack([Y, predicted])).all(axis=1)
        return float(r2_score(Y[known], predicted[known]))

    def _set_attributes(self) -> None:
        super()._set_attributes()
        fitted = self._fitted

        def shaped(values: Array | None) -> Any:
            return values if values is None or not fitted.one_target else values[0]

        self.coef_, self.intercept_ = shaped(fitted.coefficient), shaped(fitted.intercept)
        self.covariate_coef_, self.score_coef_ = shaped(fitted.covariate_coefficient), shaped(fitted.score_coefficient)
        self.n_components_ = int(fitted.chosen[0]) if fitted.one_target else fitted.chosen
        self.cv_mse_, self.cv_mse_deviation_ = shaped(fitted.cv_error), shaped(fitted.cv_error_deviation)
        self.cv_r2_, self.r2_ = shaped(fitted.cv_r2), shaped(fitted.r2)
        self.folds_ = fitted.folds

    def __sklearn_tags__(self) -> Any:
        """Return the tags of scikit-learn: several targets are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        return tags


def _block_targets(block: Array, *, fitted: PCRFit, missing: str) -> Array:
    """Return the predictions from the components for one block of a lazy array."""
    T = scaled_block(block, fitted.scaling, np.result_type(tile_dtype(block.dtype), np.float64), missing)
    return np.asarray(T @ fitted.components.T @ fitted.score_coefficient.T)

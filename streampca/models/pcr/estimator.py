"""The `PCR` estimator: principal component regression with cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.base import SHARED, Estimator, is_dask, is_labelled, matched, scaled_block
from streampca.models.pca.fit import check_width
from streampca.models.pcr import dataset
from streampca.models.pcr.fit import fit_pcr, predict_targets, predicted_by_covariates
from streampca.models.pcr.options import PCROptions
from streampca.models.pcr.record import PCRFit
from streampca.models.pcr.targets import Targets
from streampca.progress import Progress, silent
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.sweep import lazy_rows


class PCR(RegressorMixin, Estimator):  # type: ignore[misc]
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

    _dataset = dataset
    _shown = ("components", "explained_variance", "explained_variance_ratio", "certificate")
    _fitted: PCRFit

    def __init__(
        self,
        n_components: int | None = None,
        *,
        cv: int | None = 5,
        scale: str | None = "auto",
        missing: str = "auto",
        solver: str = "auto",
        tol: float = 1e-6,
        memory_limit: str | int | None = None,
        random_state: Any = 0,
        progress: Progress | None = None,
    ):
        self.n_components = n_components
        self.cv = cv
        self.scale = scale
        self.missing = missing
        self.solver = solver
        self.tol = tol
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def fit(
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
        options = PCROptions.of(self._parameters())
        fitted, used = fit_pcr(source, options, targets, memory=self.memory_limit, progress=self.progress or silent)
        self._keep(fitted, used, fitted.pca.axes(used))
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
            check_width(source, fitted.pca)
            block = partial(_block_targets, fitted=fitted, missing=self._missing)
            values = lazy_rows(X.reshape(source.shape), block, len(fitted.names), np.float64)
            values = values + predicted_by_covariates(fitted, covariates, source.shape[0])
            return values[:, 0] if fitted.one_target else values
        match = matched(source, self._labels) if fitted.genotypes else None
        values = predict_targets(
            source, fitted, covariates, match, self._missing, self.memory_limit, self.progress or silent
        )  # fmt: skip
        return self._like(X, values, source)

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

    def _like(self, X: Any, values: Array, source: Source) -> Any:
        """Return predictions in the form of X: labelled if X is, else NumPy."""
        values = values[:, 0] if self._fitted.one_target else values
        if not is_labelled(X):
            return values
        import xarray  # slow to import, and imported already if X is labelled

        target = () if self._fitted.one_target else ("target",)
        names = {} if self._fitted.one_target else {"target": list(self._fitted.names)}
        shaped = values.reshape(*source.samples.sizes, *values.shape[1:])
        return xarray.DataArray(shaped, dims=(*source.samples.dims, *target), coords={**source.samples.coords, **names})

    @property
    def _missing(self) -> str:
        """Rule for NaN in arrays."""
        return "error" if self.missing == "auto" else self.missing

    def _set_attributes(self) -> None:
        fitted = self._fitted
        self._show(fitted.pca, (*SHARED, *self._shown))

        def shaped(values: Array | None) -> Any:
            return values if values is None or not fitted.one_target else values[0]

        self.coef_, self.intercept_ = shaped(fitted.coefficient), shaped(fitted.intercept)
        self.covariate_coef_, self.score_coef_ = shaped(fitted.covariate_coefficient), shaped(fitted.score_coefficient)
        self.n_components_ = int(fitted.chosen[0]) if fitted.one_target else fitted.chosen
        self.cv_mse_, self.cv_mse_deviation_ = shaped(fitted.cv_error), shaped(fitted.cv_error_deviation)
        self.cv_r2_, self.r2_ = shaped(fitted.cv_r2), shaped(fitted.r2)
        self.folds_ = fitted.folds

    def __sklearn_tags__(self) -> Any:
        """Allow several targets, and NaN if missing="mean"."""
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


def _block_targets(block: Array, *, fitted: PCRFit, missing: str) -> Array:
    """Return the predictions from the components for one block of a lazy array."""
    T = scaled_block(block, fitted.pca.scaling, np.result_type(tile_dtype(block.dtype), np.float64), missing)
    return np.asarray(T @ fitted.pca.components.T @ fitted.score_coefficient.T)

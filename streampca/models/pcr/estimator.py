"""The `PCR` estimator: principal component regression over data of any size, with its cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import match_variants
from streampca.models.base import Opener, scaled_block
from streampca.models.dataset import as_dataset
from streampca.models.pca.fit import check_width
from streampca.models.pcr.fit import (
    PCRFit,
    fit_pcr,
    foretold_by_covariates,
    predict_targets,
    regression_attributes,
    regression_variables,
)
from streampca.models.pcr.options import PCROptions
from streampca.models.pcr.targets import Targets
from streampca.progress import Progress, logger, silent
from streampca.sources import Source
from streampca.sweep.matrix import tile_dtype
from streampca.sweep.sweep import lazy_rows

if TYPE_CHECKING:
    import xarray


class PCR(RegressorMixin, Opener):  # type: ignore[misc]
    """Principal component regression: least squares of y on the first m scores, lifted to the features.

        y = a + c'gamma + z_m'beta_m + error,   z_m = V_m'x,   beta = V_m beta_m

    for x centred (and scaled) and covariates c, if any. How many components are used, m, is chosen for each target by
    k-fold cross-validation among 0 .. n_components: each fold's training set has its own mean and components, as if
    fitted alone, but all come from the same sweeps. Few features or few samples take one sweep or two in all; where
    both are many, as many as block Lanczos takes for the slowest training set, and one or two more.

    Scales of features (and means that missing values stand at) are those of all samples: they do not know y.

    Parameters
    ----------
    n_components : int or None
        Most components that may be used; None for 20, or as many as there can be. With cv=0 all of them are used.
        Components without variance never are.
    cv : int or None
        Folds, shuffled by random_state; 0 or None for none.
    scale, missing, memory_limit, progress
        As for `PCA`.
    solver : "auto", "covariance", "gram" or "krylov"
        As for `PCA`.
    tol : float
        Largest certificate allowed. What the default asks for is handled in float64.
    random_state : int, RandomState or None
        Seed of the folds and of the random start of "krylov".

    Attributes
    ----------
    coef_ : (n_features,) or (n_targets, n_features), in units of the data. Where y has one dimension, this and all that
        follows is without that of the targets.
    intercept_, covariate_coef_ : (n_targets,), (n_targets, n_covariates).
    n_components_ : (n_targets,) components used.
    score_coef_ : (n_targets, k) coefficients of the scores, zero beyond n_components_.
    cv_mse_, cv_mse_deviation_ : (n_targets, k + 1) mean over the folds of the mean squared error of samples left out,
        for m = 0 .. k components, and its standard error; None without folds. The smallest is chosen.
    cv_r2_ : (n_targets, k + 1) 1 - squared errors of samples left out / squares about the mean; None without folds.
    r2_ : (n_targets, k + 1) share of the variance of y explained in the samples fitted.
    folds_ : (n_samples,) fold of each sample, -1 for those with missing targets or covariates, which are not used.
    components_, explained_variance_, explained_variance_ratio_, certificate_ : as of `PCA`, of the samples used.
    mean_, scale_ : (n_features,) of all samples; scale_ is None without scaling.
    converged_, advice_, n_sweeps_ : as of `PCA`.
    result_ : xarray.Dataset of all this, labelled as the data were.

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

    _found: PCRFit

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
        """Fit y, of one or more targets, on the components of X.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        y : (n_samples,) or (n_samples, n_targets). A sample with NaN here or in the covariates is not used.
        covariates : (n_samples,) or (n_samples, n_covariates), which are always in the regression.
        folds : (n_samples,) the fold of each sample, from 0 on, or -1 not to use it; instead of `cv` folds at random.
        sample_dims : dimensions of labelled data that make up the samples; the first one unless given.
        """
        if y is None:
            raise InputError("PCR requires y to be passed, but the target y is None; give a number for each sample")
        source = self._source(X, sample_dims, reset=True)
        targets = Targets.of(y, covariates, folds, source.shape[0])
        options = PCROptions.of(self._parameters())
        self._single = np.asarray(y).ndim == 1
        self._found, fitted = fit_pcr(
            source, options, targets, memory=self.memory_limit, progress=self.progress or silent
        )
        self._set_attributes(fitted)
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
        source, found, match = self._source(X, None, reset=False), self._found, None
        if type(X).__module__.startswith("dask.array") and not found.genotypes:
            check_width(source, found.pca)
            block = partial(_block_targets, found=found, missing=self._missing)
            values = lazy_rows(X.reshape(source.shape), block, len(found.names), np.float64)
            values = values + foretold_by_covariates(found, covariates, source.shape[0])
            return values[:, 0] if self._single else values
        if found.genotypes:
            if not source.is_genotypes:
                raise InputError("this regression is on genotypes; give a genotype file or source")
            labels = {name: np.asarray(values) for name, (_, values) in self._labels_of_features().items()}
            match = match_variants(labels, source)
            logger.info("%s", match.note)
        values = predict_targets(
            source, found, covariates, match, self._missing, self.memory_limit, self.progress or silent
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
        foretold = np.asarray(self.predict(X, covariates))
        Y = np.asarray(y, np.float64)
        known = np.isfinite(np.column_stack([Y, foretold])).all(axis=1)
        return float(r2_score(Y[known], foretold[known]))

    def _labels_of_features(self) -> Any:
        assert self._labels is not None
        return self._labels[1].coords

    def _like(self, X: Any, values: Array, source: Source) -> Any:
        """Return predictions as X came: labelled for labelled data, else NumPy."""
        values = values[:, 0] if self._single else values
        if not type(X).__module__.startswith("xarray."):
            return values
        import xarray

        target = () if self._single else ("target",)
        names = {} if self._single else {"target": list(self._found.names)}
        shaped = values.reshape(*source.samples.sizes, *values.shape[1:])
        return xarray.DataArray(shaped, dims=(*source.samples.dims, *target), coords={**source.samples.coords, **names})

    @property
    def _missing(self) -> str:
        """What to do with NaN in arrays."""
        return "error" if self.missing == "auto" else self.missing

    def _set_attributes(self, source: Source) -> None:
        found, pca = self._found, self._found.pca

        def shaped(values: Array | None) -> Any:
            return values if values is None or not self._single else values[0]

        self.coef_, self.intercept_ = shaped(found.coefficient), shaped(found.intercept)
        self.covariate_coef_, self.score_coef_ = shaped(found.covariate_coefficient), shaped(found.score_coefficient)
        self.n_components_ = int(found.chosen[0]) if self._single else found.chosen
        self.cv_mse_, self.cv_mse_deviation_ = shaped(found.cv_error), shaped(found.cv_error_deviation)
        self.cv_r2_, self.r2_ = shaped(found.cv_r2), shaped(found.r2)
        self.folds_ = found.folds
        self.components_ = pca.components
        self.explained_variance_ = pca.explained_variance
        self.explained_variance_ratio_ = pca.explained_variance_ratio
        self.certificate_ = pca.certificate
        self.mean_, self.scale_ = pca.mean, pca.scale
        self.converged_, self.advice_ = pca.converged, pca.advice
        self.n_sweeps_ = pca.n_sweeps
        self.n_features_in_ = len(pca.mean)
        self._labels = pca.axes(source)
        self._origin = source.name, source.fingerprint()

    @property
    def result_(self) -> xarray.Dataset:
        """All that was found, as a labelled Dataset with its provenance."""
        check_is_fitted(self)
        assert self._labels is not None
        parameters = {name: value for name, value in self.get_params().items() if name != "progress"}
        attributes = regression_attributes(self._found, *self._origin, parameters)
        return as_dataset(*regression_variables(self._found, *self._labels), attributes)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether there is anything to predict by."""
        return hasattr(self, "_found")

    def __sklearn_tags__(self) -> Any:
        """Say that there may be several targets, and whether NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


def _block_targets(block: Array, *, found: PCRFit, missing: str) -> Array:
    """Return what the components foretell for one block of a lazy array."""
    T = scaled_block(block, found.pca.scaling, np.result_type(tile_dtype(block.dtype), np.float64), missing)
    return np.asarray(T @ found.pca.components.T @ found.score_coefficient.T)

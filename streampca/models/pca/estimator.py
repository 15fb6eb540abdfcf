"""The `PCA` estimator: scikit-learn's API for data of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.base import Likelihood, Transformer, class_only, is_dask, is_labelled, matched, scaled_block
from streampca.models.genotypes import placed_genotypes
from streampca.models.pca.accumulator import (
    Summary,
    accumulator_dataset,
    combine_summaries,
    components_of,
    summarise,
    summary_from,
    summary_of,
)
from streampca.models.pca.fit import fit_pca, project, project_observed, with_scores
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, log_likelihood
from streampca.progress import Progress, logger
from streampca.solvers.observed import place_block
from streampca.sources import Source
from streampca.sweep.matrix import Defects, tile_dtype
from streampca.sweep.memory import memory_limit
from streampca.sweep.sweep import Sweeps

if TYPE_CHECKING:
    import xarray


class _Batches(Transformer[PCAFit]):
    """PCA batch by batch, and of the samples of several fits."""

    _summary: Summary | None = None

    def partial_fit(self, X: Any, y: None = None) -> Self:  # noqa: ARG002
        """Add a batch of samples.

        Exact, for any order and size of the batches, while the d x d covariance fits the memory limit. Beyond that a
        sketch of max(4 k, k + 64) rows is merged with each batch (k = 32 if n_components is not a number), and the
        certificate includes what it drops. Missing values raise an error: the mean is unknown until the end.
        After a `fit` that formed the covariance the batches add to it; after any other it starts over with a warning.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes but genotypes.
        y : ignored.
        """
        summary = self._summary
        if summary is None and self.__sklearn_is_fitted__():
            if self._fitted.scatter is None or self._fitted.missing.any():
                logger.warning("the fit kept no accumulator to add batches to; partial_fit starts over")
            else:
                summary = summary_of(self._fitted, None)
        source = self._source(X, None, reset=summary is None)
        if source.is_genotypes:
            raise InputError(f"{source.name}: partial_fit takes arrays; use fit for genotypes")
        n, d = source.shape
        if isinstance(self.n_components, (int, np.integer)) and self.n_components > d:
            raise InputError(f"n_components must be at most {d}, the number of features, got {self.n_components}")
        rows = self._sketch_rows(summary, d)
        step = max(1, min(source.chunks[0], (rows or source.chunks[0])))
        for start in range(0, n, step):
            batch, _ = source.read(slice(start, min(start + step, n)), slice(0, d))
            if batch.dtype.kind == "f" and not np.isfinite(batch).all():
                Defects.of(batch, (start, 0)).check("error", source.name, (source.samples, source.features))
            part = summarise(batch, rows)
            summary = part if summary is None else combine_summaries(summary, part)
        assert summary is not None
        self._summary = summary
        if summary.n_samples > 1:
            self._keep(self._components_so_far(), source, source)
        return self

    def _sketch_rows(self, summary: Summary | None, d: int) -> int | None:
        """Return the rows of the sketch, None to be exact: as before, or as the memory limit allows."""
        exact = 5 * 8 * d * d < memory_limit(self.memory_limit) if summary is None else summary.exact
        k = int(self.n_components) if isinstance(self.n_components, (int, np.integer)) else 32
        return None if exact else max(4 * k, k + 64)

    def _components_so_far(self) -> PCAFit:
        """Return the components of the summary, no more than the samples so far allow."""
        assert self._summary is not None
        options: PCAOptions = self._checked_options()
        update: dict[str, Any] = {"scale": None if options.scale == "auto" else options.scale}
        if isinstance(options.n_components, int):
            update["n_components"] = min(options.n_components, self._summary.n_samples, len(self._summary.moments.mean))
        return components_of(self._summary, options.changed(**update))

    def merge(self, other: Self) -> Self:
        """Return the PCA of the samples of both, which must be disjoint: as if fitted on their union.

        Exact if both were fitted by solver="covariance" or by `partial_fit` within the memory limit. Sites can share
        these accumulators (`accumulator_`) instead of their data.

        Parameters
        ----------
        other : fitted on the same features, in the same order.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        ours, theirs = (summary_of(model._fitted, model._summary) for model in (self, other))
        return self._from_summary(combine_summaries(ours, theirs), self.get_params())

    @property
    def accumulator_(self) -> xarray.Dataset:
        """Count, mean, M2 and scatter as a Dataset, to save, send, and merge elsewhere by `from_accumulator`."""
        check_is_fitted(self)
        try:
            return accumulator_dataset(summary_of(self._fitted, self._summary))
        except InputError as error:
            # Notebooks ask for all attributes when they show an estimator.
            raise AttributeError(str(error)) from error

    @class_only
    def from_accumulator(cls: type[PCA], accumulator: xarray.Dataset, /, **parameters: Any) -> PCA:  # noqa: N805
        """Return a PCA fitted from the accumulator of another.

        Parameters
        ----------
        accumulator : `accumulator_` of the other.
        parameters : of the new PCA, such as n_components.
        """
        return cls._from_summary(summary_from(accumulator), parameters)

    @classmethod
    def _from_summary(cls, summary: Summary, parameters: dict[str, Any]) -> Self:
        merged = cls(**parameters)
        merged._summary = summary
        merged._fitted = merged._components_so_far()
        merged._origin = ("merged accumulators", "")
        merged._set_attributes()
        return merged


@dataclass(repr=False, eq=False)
class PCA(Likelihood, _Batches):
    """Principal component analysis of data that need not fit in memory.

    S = X'X / (n - 1) for X centred (and scaled), S v_i = lambda_i v_i; every component comes with a certificate
    r_i >= ||S v_i - lambda_i v_i|| / lambda_i, so that some eigenvalue of S is within r_i lambda_i of lambda_i, and the
    angle to its eigenvector is at most about r_i lambda_i / gap.

    Parameters
    ----------
    n_components : int, float in (0, 1), or None
        Number of components; or the fraction of the total variance to explain, for which only the trace is needed;
        None for all min(n_samples, n_features), 10 for genotype files.
    scale : "auto", None, "unit", "patterson", "eigenstrat" or "coslat"
        "unit" divides each feature by its standard deviation (n - 1): PCA of the correlation matrix. "patterson" is for
        allele counts: (g - 2p) / sqrt(2p(1 - p)); "eigenstrat" divides by the same of p = (1 + sum of counts) /
        (2 + 2 calls), as smartpca with altnormstyle NO. "coslat" is for fields on a grid of latitudes, whose features
        it multiplies by sqrt(cos(latitude)). "auto" is "patterson" for genotype files, None for other data.
    missing : "auto", "error", "mean" or "lsq"
        Missing values (NaN): raise an error, or replace them by the mean of the feature, which moves samples with many
        of them towards the centre. "lsq" fits the same components, and computes scores by least squares over the
        values that each sample has, in one more sweep; NaN if there are too few. "auto" is "mean" for genotype files,
        "error" for other data. Infinite values always raise an error.
    whiten : bool
        Divide scores by the square root of the explained variance.
    solver : "auto", "covariance", "gram", "krylov" or "power"
        "covariance": the d x d matrix in one sweep. "gram": the n x n matrix, when samples are few. "krylov": block
        Lanczos, one sweep per block, for larger data. "power": power method with peeling. "auto" chooses the
        cheapest that fits the memory limit.
    tol : float
        Largest certificate, or estimate, allowed. Tiles are float64 if the tolerance requires it.
    certificate : True, "exact" or False
        How rounding enters the certificate. True measures that of float32 products with random probes in float64.
        "exact" computes residuals in float64. False does not measure it: fits in float32 give `estimate_`, which
        excludes rounding, instead of `certificate_`.
    resolve : "signal" or "all"
        Components that must reach `tol`. "signal": those that can be distinguished from noise; a certificate of 0.05 is
        enough for the others, whose directions another sample would not reproduce. Only "krylov" saves sweeps by it.
    memory_limit : str, int or None
        Limit on the memory that streampca adds to the process, as "600MB" or in bytes; half of the available memory by
        default.
    random_state : int, RandomState or None
        Seed of the random start of "krylov" and "power".
    progress : callable or None
        Called with a `streampca.progress.Step` when a partition is done.

    Attributes
    ----------
    components_ : (n_components, n_features), orthonormal rows, the largest entry of each positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components,).
    mean_, scale_ : (n_features,); scale_ is None without scaling.
    noise_variance_ : mean of the other eigenvalues.
    total_variance_ : trace of S.
    certificate_ : (n_components,) r_i, rounding included; missing if `certificate_method_` is "none".
    estimate_ : (n_components,) r_i without rounding, not a bound; only if `certificate_method_` is "none".
    certificate_method_ : "probe" or "exact", how rounding was measured; "none" if it was not: with certificate=False,
        or from accumulators of version 0.7.
    converged_, advice_ : whether every certificate (estimate, if there is none) is within tol, or within 0.05 if the
        component is noise and resolve="signal", and what to do if not.
    tracy_widom_, p_value_ : (n_components,) Tracy-Widom statistic of each eigenvalue, without those before it, and the
        probability of a larger one in noise (Patterson et al. 2006). None if not tested, as with solver="power".
    noise_ : (n_components,) mask of the components that cannot be distinguished from noise, p_value_ > 0.05.
    squared_cosine_ : (n_components,) estimated squared cosine with the component of the population, of scores for
        genotypes.
    notes_ : what was excluded, and which components are not distinguishable.
    n_components_, n_samples_, n_sweeps_ : number of components, samples, and reads of all the data.
    result_ : xarray.Dataset of all this, labelled like the data; includes scores after `fit_transform`, and if the fit
        computes them anyway.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> X = np.random.default_rng(0).normal(size=(1000, 5)) * [9, 5, 1, 1, 1]
    >>> model = streampca.PCA(n_components=2).fit(X)
    >>> model.explained_variance_ratio_.round(2).tolist()
    [0.75, 0.23]
    >>> bool(model.certificate_.max() < 1e-12)
    True
    """

    _options = PCAOptions
    _record = PCAFit
    _shown = (
        "components", "explained_variance", "explained_variance_ratio", "singular_values", "noise_variance",
        "total_variance", "certificate_method", "tracy_widom", "p_value", "noise", "squared_cosine",
    )  # fmt: skip

    n_components: int | float | None = None
    _: KW_ONLY
    scale: str | None = "auto"
    missing: str = "auto"
    whiten: bool = False
    solver: str = "auto"
    tol: float = 1e-3
    certificate: bool | str = True
    resolve: str = "signal"
    memory_limit: str | int | None = None
    random_state: Any = 0
    progress: Progress | None = None

    def _fit(self, source: Source) -> Sweeps:
        fitted, sweeps = self._fit_by(fit_pca, source, keep_scatter=True)
        self._summary = None
        self._keep(fitted, source, sweeps.matrix.source)
        return sweeps

    def _fitted_scores(self, sweeps: Sweeps, source: Source) -> Array:
        self._fitted = with_scores(self._fitted, sweeps)
        self._set_attributes()
        assert self._fitted.scores is not None
        # A fit that moved to float64 has float64 scores; `transform` returns the type of X.
        return _whitened(self._fitted.scores, self._fitted, self.whiten).astype(self._dtype(source), copy=False)

    def _scores_of(self, source: Source) -> Array:
        if self._fitted.genotypes:
            match = matched(source, self._labels)
            how = "lsq" if self.missing == "lsq" else "simple"
            scores = placed_genotypes(source, self._fitted, match, projection=how, **self._how).scores
        elif self.missing == "lsq":
            scores = project_observed(source, self._fitted, **self._how).scores.astype(self._dtype(source))
        else:
            scores, _ = project(source, self._fitted, self._missing, **self._how)
        return _whitened(scores, self._fitted, self.whiten)

    def _block_scores(self) -> Callable[[Array], Array]:
        fitted = replace(self._fitted, scores=None, scatter=None)
        return partial(_block_scores, fitted=fitted, missing=self._missing, whiten=self.whiten)

    def _scores_and_squares(self, X: Any) -> tuple[Array, Array]:
        """Return the scores of samples and their squared lengths, in float64."""
        check_is_fitted(self)
        source = self._source(X, None, reset=False)
        part, fitted = self._part(source)
        if fitted.n_features < self._fitted.n_features:
            counts = f"{fitted.n_features} of {self._fitted.n_features} fitted variants"
            raise InputError(f"{source.name} has {counts}; all are needed here")
        # The squared length and that of the scores are those of the filled sample.
        missing = "mean" if fitted.genotypes or self.missing == "lsq" else self._missing
        return project(part, fitted, missing, **self._how, dtype=np.float64)

    def inverse_transform(self, X: Any) -> Any:
        """Map scores back to samples: (X V') scale + mean.

        Parameters
        ----------
        X : samples x components, as `transform` returns them.
        """
        check_is_fitted(self)
        fitted = self._fitted
        weights = _deviations(fitted) if self.whiten else np.ones(fitted.n_components)
        components = fitted.components * weights[:, None]
        if is_dask(X):
            return fitted.scaling.restore(X @ components)
        if is_labelled(X):
            return self._labelled(X, lambda Z: fitted.scaling.restore(Z @ components))
        scores = np.asarray(X)
        restored = fitted.scaling.restore(scores @ components)
        return restored.astype(np.result_type(scores.dtype, np.float32)) if scores.dtype.kind == "f" else restored

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood of each sample under the PPCA model; of the scaled features, if scaled.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        return log_likelihood(*self._scores_and_squares(X), self._fitted)

    def get_covariance(self) -> Array:
        """Return the model's covariance (d x d), V (L - s2 I) V' + s2 I, of the scaled features, if scaled.

        Whitening changes scores, not the model: unlike scikit-learn's, this is the same with and without it.
        """
        check_is_fitted(self)
        V, s2 = self._fitted.components, self._fitted.noise_variance
        excess = np.maximum(self._fitted.explained_variance - s2, 0.0)
        covariance = (V.T * excess) @ V
        covariance.flat[:: len(covariance) + 1] += s2
        return covariance

    def get_precision(self) -> Array:
        """Return the inverse of the model's covariance, by the k x k system where there is noise."""
        check_is_fitted(self)
        V, l, s2 = self._fitted.components, self._fitted.explained_variance, self._fitted.noise_variance
        if s2 == 0 or len(V) == V.shape[1]:
            return np.asarray(np.linalg.inv(self.get_covariance()))
        precision = (V.T * (1 / l - 1 / s2)) @ V
        precision.flat[:: len(precision) + 1] += 1 / s2
        return precision

    def reconstruction_error(self, X: Any) -> Array:
        """Return ||x - x_k||^2 of each sample, its squared distance from the subspace (scaled, if features are).

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        scores, squares = self._scores_and_squares(X)
        return np.asarray(np.maximum(squares - (scores**2).sum(axis=1), 0.0))

    def reconstruction_curve(self) -> Array:
        """Return J(m) for m = 0 .. k: the sum of all eigenvalues but the first m, from the trace."""
        check_is_fitted(self)
        left = self._fitted.total_variance - np.cumsum([0.0, *self._fitted.explained_variance])
        return np.asarray(np.maximum(left, 0.0))

    def _set_attributes(self) -> None:
        super()._set_attributes()
        # One of the two exists; an earlier fit may have had the other.
        for name in ("certificate", "estimate"):
            self.__dict__.pop(f"{name}_", None)
            if getattr(self._fitted, name) is not None:
                setattr(self, f"{name}_", getattr(self._fitted, name))


def _deviations(fitted: PCAFit) -> Array:
    """Return the standard deviation of each score; of directions without variance, one that is not zero."""
    deviation = np.sqrt(fitted.explained_variance)
    return np.asarray(np.maximum(deviation, np.finfo(np.float64).eps * deviation[0]))


def _whitened(scores: Array, fitted: PCAFit, whiten: bool) -> Array:
    """Return the scores, divided by their standard deviation if `whiten`."""
    return np.asarray(scores / _deviations(fitted).astype(scores.dtype)) if whiten else scores


def _block_scores(block: Array, *, fitted: PCAFit, missing: str, whiten: bool) -> Array:
    """Return the scores of one block of a lazy array."""
    if missing == "lsq":
        T = scaled_block(block, fitted.scaling, tile_dtype(block.dtype), missing, fill=np.nan)
        return _whitened(place_block(T, fitted.components).scores.astype(T.dtype), fitted, whiten)
    T = scaled_block(block, fitted.scaling, tile_dtype(block.dtype), missing)
    return _whitened(T @ fitted.components.T.astype(T.dtype), fitted, whiten)

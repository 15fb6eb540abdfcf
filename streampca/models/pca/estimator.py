"""The `PCA` estimator: scikit-learn's API for data of any size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.base import Transformer, class_only, is_dask, is_labelled, scaled_block, scores_like
from streampca.models.dataset import error_name
from streampca.models.genotypes import fit_genotypes, matching_part, placed_genotypes
from streampca.models.pca import dataset
from streampca.models.pca.accumulator import (
    Summary,
    accumulator_dataset,
    combine_summaries,
    components_of,
    summarise,
    summary_from,
    summary_of,
)
from streampca.models.pca.fit import check_width, fit_pca, project, scores_of
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit, log_likelihood
from streampca.progress import Progress, logger, silent
from streampca.sources import Source
from streampca.sweep.matrix import Defects, tile_dtype
from streampca.sweep.memory import memory_limit
from streampca.sweep.sweep import Sweeps, lazy_rows

if TYPE_CHECKING:
    import xarray


class PCA(Transformer):
    """Principal component analysis of data that need not fit in memory.

    S = X'X / (n - 1) for X centred (and scaled), S v_i = lambda_i v_i; every component comes with a certificate
    r_i >= ||S v_i - lambda_i v_i|| / lambda_i, so that some eigenvalue of S is within r_i lambda_i of lambda_i, and the
    angle to its eigenvector is at most about r_i lambda_i / gap.

    Parameters
    ----------
    n_components : int, float in (0, 1), or None
        Number of components; or the fraction of the total variance to explain, for which only the trace is needed;
        None for all min(n_samples, n_features), 10 for genotype files.
    scale : "auto", None, "unit", "patterson" or "coslat"
        "unit" divides each feature by its standard deviation (n - 1): PCA of the correlation matrix. "patterson" is for
        allele counts: (g - 2p) / sqrt(2p(1 - p)). "coslat" is for fields on a grid of latitudes, whose
        features it multiplies by sqrt(cos(latitude)). "auto" is "patterson" for genotype files, None for other data.
    missing : "auto", "error" or "mean"
        Missing values (NaN): raise an error, or replace them by the mean of the feature. "auto" is "mean" for genotype
        files, "error" for other data. Infinite values always raise an error.
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
    converged_, advice_ : whether every certificate (estimate, if there is none) is within tol, and what to do if not.
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

    _dataset = dataset
    _shown = (
        "components", "explained_variance", "explained_variance_ratio", "singular_values", "noise_variance",
        "total_variance", "certificate_method",
    )  # fmt: skip
    _fitted: PCAFit
    _summary: Summary | None = None

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        scale: str | None = "auto",
        missing: str = "auto",
        whiten: bool = False,
        solver: str = "auto",
        tol: float = 1e-3,
        certificate: bool | str = True,
        memory_limit: str | int | None = None,
        random_state: Any = 0,
        progress: Progress | None = None,
    ):
        self.n_components = n_components
        self.scale = scale
        self.missing = missing
        self.whiten = whiten
        self.solver = solver
        self.tol = tol
        self.certificate = certificate
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> PCA:  # noqa: ARG002
        """Fit the components of X: an array, a path, or anything that `open_source` takes.

        Parameters
        ----------
        X : samples x features.
        y : ignored.
        sample_dims : dimensions of labelled data that make up the samples; the first one by default.
        """
        self._fit(self._source(X, sample_dims, reset=True))
        return self

    def fit_transform(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> Any:  # noqa: ARG002
        """Fit the components and return the scores of X; at most one sweep more than `fit`.

        Parameters
        ----------
        X, y, sample_dims : as for `fit`.
        """
        source = self._source(X, sample_dims, reset=True)
        sweeps = self._fit(source)
        if is_dask(X):
            return self.transform(X)
        scores, fitted = scores_of(self._fitted, sweeps)
        self._keep_fit(fitted, sweeps, scores)
        return scores_like(X, _whitened(scores, fitted, self.whiten), source)

    def _fit(self, source: Source) -> Sweeps:
        fit = partial(
            fit_pca, options=self._options(), memory=self.memory_limit, progress=self.progress or silent,
            keep_scatter=True,
        )  # fmt: skip
        fitted, sweeps = fit_genotypes(source, fit)[:2] if source.is_genotypes else fit(source)
        self._summary = None
        self._keep_fit(fitted, sweeps, fitted.scores)
        return sweeps

    def _keep_fit(self, fitted: PCAFit, sweeps: Sweeps, scores: Array | None) -> None:
        source = sweeps.matrix.source
        self._keep(fitted, source, fitted.axes(source), scores)

    def partial_fit(self, X: Any, y: None = None) -> PCA:  # noqa: ARG002
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
        summary = self._summary_so_far()
        source = self._source(X, None, reset=summary is None)
        if source.is_genotypes:
            raise InputError(f"{source.name}: partial_fit takes arrays; use fit for genotypes")
        d = source.shape[1]
        rows = self._sketch_rows(summary, d)
        step = max(1, min(source.chunks[0], (rows or source.chunks[0])))
        for start in range(0, source.shape[0], step):
            batch, _ = source.read(slice(start, min(start + step, source.shape[0])), slice(0, d))
            if batch.dtype.kind == "f" and not np.isfinite(batch).all():
                Defects.of(batch, (start, 0)).check("error", source.name)
            part = summarise(batch, rows)
            summary = part if summary is None else combine_summaries(summary, part)
        assert summary is not None
        self._summary = summary
        if summary.n_samples > 1:
            fitted = components_of(summary, self._clipped_options())
            self._keep(fitted, source, fitted.axes(source))
        return self

    def _summary_so_far(self) -> Summary | None:
        if self._summary is not None or not self.__sklearn_is_fitted__():
            return self._summary
        if self._fitted.scatter is None or self._fitted.missing.any():
            logger.warning("the fit kept no accumulator to add batches to; partial_fit starts over")
            return None
        return self._summary_of()

    def _sketch_rows(self, summary: Summary | None, d: int) -> int | None:
        """Return the rows of the sketch, None to be exact: as before, or as the memory limit allows."""
        exact = 5 * 8 * d * d < memory_limit(self.memory_limit) if summary is None else summary.exact
        k = int(self.n_components) if isinstance(self.n_components, (int, np.integer)) else 32
        return None if exact else max(4 * k, k + 64)

    def merge(self, other: PCA) -> PCA:
        """Return the PCA of the samples of both, which must be disjoint: as if fitted on their union.

        Exact if both were fitted by solver="covariance" or by `partial_fit` within the memory limit. Sites can share
        these accumulators (`accumulator_`) instead of their data.

        Parameters
        ----------
        other : fitted on the same features, in the same order.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        return self._from_summary(combine_summaries(self._summary_of(), other._summary_of()), self.get_params())

    @property
    def accumulator_(self) -> xarray.Dataset:
        """Count, mean, M2 and scatter as a Dataset, to save, send, and merge elsewhere by `from_accumulator`."""
        check_is_fitted(self)
        return accumulator_dataset(self._summary_of())

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
    def _from_summary(cls, summary: Summary, parameters: dict[str, Any]) -> PCA:
        merged = cls(**parameters)
        merged._summary = summary
        merged._fitted = components_of(summary, merged._clipped_options())
        merged._origin = ("merged accumulators", "")
        merged._set_attributes()
        return merged

    def _summary_of(self) -> Summary:
        return summary_of(self._fitted, self._summary)

    def transform(self, X: Any) -> Any:
        """Return the scores (X - mean) / scale V; one sweep. Dask in, lazy Dask out; xarray in, xarray out.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        if is_dask(X) and not fitted.genotypes:
            check_width(source, fitted)
            block_scores = partial(_block_scores, fitted=fitted, missing=self._missing, whiten=self.whiten)
            return lazy_rows(X.reshape(source.shape), block_scores, len(fitted.components), tile_dtype(source.dtype))
        progress = self.progress or silent
        if fitted.genotypes:
            genotypes, match = self._matched(source)
            scores, _ = placed_genotypes(
                genotypes, fitted, match, projection="simple", memory=self.memory_limit, progress=progress
            )
        else:
            scores, _ = project(source, fitted, self._missing, self.memory_limit, progress)
        return scores_like(X, _whitened(scores, fitted, self.whiten), source)

    def _scores_and_squares(self, X: Any) -> tuple[Array, Array]:
        """Return the scores of samples and their squared lengths, in float64."""
        check_is_fitted(self)
        source, fitted = self._source(X, None, reset=False), self._fitted
        if fitted.genotypes:
            genotypes, match = self._matched(source)
            if len(match.fitted) < len(fitted.mean):
                raise InputError(f"{source.name}: all fitted variants are needed here: {match.note}")
            source, fitted = genotypes.take(features=match.new), matching_part(fitted, match)
        missing = "mean" if fitted.genotypes else self._missing
        return project(source, fitted, missing, self.memory_limit, self.progress or silent, np.float64)

    def inverse_transform(self, X: Any) -> Any:
        """Map scores back to samples: (X V') scale + mean.

        Parameters
        ----------
        X : samples x components, as `transform` returns them.
        """
        check_is_fitted(self)
        fitted = self._fitted
        weights = _deviations(fitted) if self.whiten else np.ones(len(fitted.components))
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

    def score(self, X: Any, y: None = None) -> float:  # noqa: ARG002
        """Return the mean log-likelihood of the samples.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        y : ignored.
        """
        return float(np.mean(self.score_samples(X)))

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
        return np.asarray(np.maximum(squares.astype(np.float64) - (scores.astype(np.float64) ** 2).sum(axis=1), 0.0))

    def reconstruction_curve(self) -> Array:
        """Return J(m) for m = 0 .. k: the sum of all eigenvalues but the first m, from the trace."""
        check_is_fitted(self)
        left = self._fitted.total_variance - np.cumsum([0.0, *self._fitted.explained_variance])
        return np.asarray(np.maximum(left, 0.0))

    def _options(self) -> PCAOptions:
        return PCAOptions.of(self._parameters())

    @property
    def _missing(self) -> str:
        """Rule for NaN in arrays."""
        return "error" if self.missing == "auto" else self.missing

    def _clipped_options(self) -> PCAOptions:
        """Return the options, with no more components than the samples so far allow."""
        options = self._options()
        update: dict[str, Any] = {"scale": None if options.scale == "auto" else options.scale}
        if self._summary is not None and isinstance(options.n_components, int):
            most = min(self._summary.n_samples, len(self._summary.moments.mean))
            update["n_components"] = min(options.n_components, most)
        return options.model_copy(update=update)

    def _set_attributes(self) -> None:
        super()._set_attributes()
        # An earlier fit may have had the other.
        for name in ("certificate_", "estimate_"):
            self.__dict__.pop(name, None)
        setattr(self, f"{error_name(self._fitted.certificate_method)}_", self._fitted.certificate)

    def __sklearn_tags__(self) -> Any:
        """Return the types that are kept, and whether NaN is allowed."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


def _deviations(fitted: PCAFit) -> Array:
    """Return the standard deviation of each score; of directions without variance, one that is not zero."""
    deviation = np.sqrt(fitted.explained_variance)
    return np.asarray(np.maximum(deviation, np.finfo(np.float64).eps * deviation[0]))


def _whitened(scores: Array, fitted: PCAFit, whiten: bool) -> Array:
    """Return the scores, divided by their standard deviation if `whiten`."""
    return np.asarray(scores / _deviations(fitted).astype(scores.dtype)) if whiten else scores


def _block_scores(block: Array, *, fitted: PCAFit, missing: str, whiten: bool) -> Array:
    """Return the scores of one block of a lazy array."""
    T = scaled_block(block, fitted.scaling, tile_dtype(block.dtype), missing)
    return _whitened(T @ fitted.components.T.astype(T.dtype), fitted, whiten)

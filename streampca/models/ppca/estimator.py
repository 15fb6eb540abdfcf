"""The `PPCA` and `FactorAnalysis` estimators."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.models.base import Likelihood, Transformer, is_dask, is_labelled, samples_like
from streampca.models.ppca.fit import MISSING_HINT, fit_ppca, infer_posterior, with_posterior
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions
from streampca.models.ppca.record import FactorAnalysisFit, PPCAFit
from streampca.progress import Progress
from streampca.solvers.em.factors import Packing, Side
from streampca.solvers.em.statistics import samples_of
from streampca.sources import Source
from streampca.sweep.matrix import Defects, tile_dtype
from streampca.sweep.missing import MissingEntries
from streampca.sweep.sweep import Sweeps


@dataclass(repr=False, eq=False)
class _LatentModel(Likelihood, Transformer[PPCAFit]):
    """What probabilistic PCA and factor analysis share: all but the kind of noise."""

    _shown = (
        "explained_variance", "explained_variance_ratio", "noise_variance", "log_likelihood", "log_likelihoods",
        "method", "n_iter", "choice", "certificate",
    )  # fmt: skip

    n_components: int | str | None = None
    _: KW_ONLY
    method: str = "auto"
    scale: str | None = "auto"
    missing: str = "model"
    criterion: str = "auto"
    solver: str = "auto"
    tol: float = 1e-3
    max_iter: int = 200
    accelerate: bool = True
    memory_limit: str | int | None = None
    random_state: Any = 0
    progress: Progress | None = None

    def _fit(self, source: Source) -> Sweeps:
        fitted, sweeps = self._fit_by(fit_ppca, source)
        if fitted.posterior is not None:
            fitted = with_posterior(fitted, sweeps)
        self._keep(fitted, source, sweeps.matrix.source)
        return sweeps

    def _fitted_scores(self, sweeps: Sweeps, source: Source) -> Array:
        if self._fitted.posterior is None:
            self._fitted = with_posterior(self._fitted, sweeps)
            self._set_attributes()
        assert self._fitted.scores is not None
        return self._fitted.scores.astype(self._dtype(source))

    def _scores_of(self, source: Source) -> Array:
        means: Array = self._infer(*self._part(source))[0].mean
        return means.astype(self._dtype(source))

    def _block_scores(self) -> Callable[[Array], Array]:
        return partial(_block_means, fitted=replace(self._fitted, posterior=None), missing=self.missing)

    def posterior(self, X: Any) -> tuple[Array, Array]:
        """Return mean (n, k) and covariance (n, k, k) of z of each sample: M_n^-1 W'(x - mu) / s2, and M_n^-1.

        M_n = I + W'W / s2 over the observed features: a sample with few values has a wide posterior, one without values
        the prior, with mean zero and covariance I.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        posterior = self._infer(*self._part(self._source(X, None, reset=False)), covariances=True)[0]
        k = self._fitted.n_components
        covariance = Packing(k).unpacked(posterior.covariance)
        return posterior.mean, np.broadcast_to(covariance, (len(posterior.mean), k, k)).copy()

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood of the observed values of each sample; of the scaled features, if scaled.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        likelihood: Array = self._infer(*self._part(self._source(X, None, reset=False)))[1]
        return likelihood

    def _infer(self, source: Source, fitted: PPCAFit, covariances: bool = False) -> tuple[Any, Array, Array]:
        """Return the posterior of samples, their log-likelihood, and their number of values."""
        missing = "model" if fitted.genotypes else self.missing
        return infer_posterior(source, fitted, missing, **self._how, covariances=covariances)

    def inverse_transform(self, X: Any) -> Any:
        """Map latent points to samples: W z + mu, in units of the data.

        Parameters
        ----------
        X : samples x components, as `transform` returns them.
        """
        check_is_fitted(self)
        if is_labelled(X):
            return self._labelled(X, self._fitted.expected)
        return self._fitted.expected(X if is_dask(X) else np.asarray(X))

    def reconstruct(self, X: Any, *, projection: str = "posterior") -> Any:
        """Return the reconstruction of each sample, in units of the data.

        By the posterior, W <z> + mu, or by the nearest point of the subspace. The posterior mean <z> = (W'W + s2 I)^-1
        W'(x - mu) is shrunk towards zero, because part of the distance from mu is noise: along axis i by the factor
        w_i^2 / (w_i^2 + s2). It estimates the sample without its noise, and missing values. The orthogonal projection,
        the limit of s2 to 0, W (W'W)^-1 W'(x - mu) + mu, is that of PCA, with the least squared error. Both are in the
        same subspace.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        projection : "posterior" or "orthogonal".
        """
        if projection not in ("posterior", "orthogonal"):
            raise InputError(f"projection must be posterior or orthogonal, got {projection!r}")
        check_is_fitted(self)
        source, fitted = self._part(self._source(X, None, reset=False))
        seen = fitted.without_noise() if projection == "orthogonal" else fitted
        posterior = self._infer(source, seen)[0]
        return samples_like(X, np.asarray(fitted.expected(posterior.mean)), source)

    def impute(self, X: Any) -> Any:
        """Return X with each missing value replaced by its mean given the observed values of its sample.

        For arrays that fit in memory; `streampca impute` writes to a store. For genotypes, the fitted variants, as
        counts from 0 to 2 of the allele that X counts.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        check_is_fitted(self)
        if self.missing != "model":
            raise InputError("the model was fitted with missing='error'; use missing='model' to impute")
        source, fitted = self._part(self._source(X, None, reset=False))
        posterior = self._infer(source, fitted)[0]
        filled = fitted.expected(posterior.mean)
        values = np.array(source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))[0], dtype=filled.dtype)
        absent = np.isnan(values)
        values[absent] = np.clip(filled, 0.0, 2.0)[absent] if fitted.genotypes else filled[absent]
        return samples_like(X, values, source)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Array:
        """Draw samples from the model, in units of the data.

        Parameters
        ----------
        n_samples : number of samples.
        random_state : int, RandomState, or None for other samples each time.
        """
        check_is_fitted(self)
        rng = check_random_state(random_state)
        factors = self._fitted.factors
        Z = rng.standard_normal((n_samples, factors.n_components))
        noise = rng.standard_normal((n_samples, len(factors.W))) * np.sqrt(factors.noise)
        return np.asarray(self._fitted.scaling.restore(Z @ factors.W.T + factors.shift + noise))

    def get_covariance(self) -> Array:
        """Return the model's covariance (d x d), W W' + noise, of the scaled features, if scaled."""
        check_is_fitted(self)
        W = self._fitted.factors.W
        covariance = W @ W.T
        covariance.flat[:: len(W) + 1] += self._fitted.factors.noise
        return np.asarray(covariance)

    def get_precision(self) -> Array:
        """Return the inverse of the model's covariance, by the k x k system."""
        check_is_fitted(self)
        factors = self._fitted.factors
        weights = np.broadcast_to(1.0 / np.asarray(factors.noise), len(factors.W))
        weighted = factors.W * weights[:, None]
        inner = np.linalg.inv(np.eye(factors.n_components) + factors.W.T @ weighted)
        precision = -weighted @ inner @ weighted.T
        precision.flat[:: len(weights) + 1] += weights
        return np.asarray(precision)

    @property
    def loglike_(self) -> Any:
        """Name of `log_likelihoods_` in version 0.7."""
        raise AttributeError("loglike_ is now log_likelihoods_; rename it")

    def _set_attributes(self) -> None:
        super()._set_attributes()
        self.components_ = self._fitted.loadings if self._fitted.per_feature_noise else self._fitted.components


def _block_means(block: Array, *, fitted: PPCAFit, missing: str) -> Array:
    """Return the posterior means of one block of a lazy array."""
    T = np.empty(block.shape, np.result_type(tile_dtype(block.dtype), fitted.tile_dtype))
    fitted.scaling.apply(T, block)
    entries = None
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        with hint_for_missing(MISSING_HINT):
            Defects.of(block).check("mean" if missing == "model" else "error", "a block of the Dask array")
        entries = MissingEntries.taken(T)
    side = Side.of_features(fitted.factors, entries is not None, T.dtype)
    off = None if entries is None or side.packed is None else entries.sums_of_rows(side.packed)
    products = (T @ side.rows)[:, : fitted.n_components + 1].astype(np.float64)
    posterior, _ = samples_of(T, products, off, side, fitted.factors)
    return posterior.mean.astype(tile_dtype(block.dtype))


@dataclass(repr=False, eq=False)
class PPCA(_LatentModel):
    """Probabilistic principal component analysis of data that need not fit in memory, with missing values.

    x = W z + mu + noise,  z ~ N(0, I),  noise ~ N(0, s2 I):  x ~ N(mu, W W' + s2 I), by maximum likelihood

    Complete data have a closed form: W = V (L - s2 I)^1/2 from the k leading eigenvalues of the covariance (1 / n), and
    s2 the mean of all others, which follows from the trace. With missing values, the likelihood is that of the observed
    values, and EM maximises it (`streampca.solvers.em.loop`) with one sweep per iteration.

    Parameters
    ----------
    n_components : int, "auto" or None
        Number of components, at most min(n_samples, n_features) - 1; "auto" chooses it by `criterion`; None is the
        maximum, 10 for genotype files.
    method : "auto", "closed" or "em"
        "auto" is "closed" for complete data, "em" for missing values.
    scale : "auto", None, "unit" or "patterson"
        As for `PCA`; "unit" is the standard deviation of the observed values.
    missing : "model" or "error"
        "model" excludes NaN, and missing genotypes, from the likelihood; "error" raises an error.
    criterion : "auto", "evidence", "bic" or "heldout"
        For n_components="auto": Minka's evidence; the Bayesian information criterion; or the likelihood of a held-out
        twentieth of the values, given the others, which also supports missing values. "auto" is "evidence" for complete
        data with more samples than features, else "heldout".
    solver : str
        Solver of the principal components that the fit starts from, as for `PCA`.
    tol : float
        EM stops when an iteration turns the subspace by less than this (sine of the angle). Also the largest
        certificate of the components that the fit starts from.
    max_iter : int
        Maximum number of EM iterations, one sweep each.
    accelerate : bool
        Parameter expansion and extrapolation: fewer sweeps to the same result. The likelihood never decreases.
    memory_limit, random_state, progress
        As for `PCA`.

    Attributes
    ----------
    components_ : (n_components, n_features), principal axes, orthonormal rows, the largest entry of each positive.
    explained_variance_, explained_variance_ratio_ : (n_components,) |w_i|^2 + s2, with 1 / n, and their share of all.
    noise_variance_ : s2.
    mean_, scale_ : (n_features,); the mean of a feature with missing values is that of the model, not of the observed
        values.
    log_likelihood_, log_likelihoods_ : of all samples, at the end and after each iteration.
    method_, n_iter_, n_sweeps_, converged_, advice_, notes_ : how the model was fitted; the others as for `PCA`.
    certificate_ : (n_components,) of the principal components of a closed form; None after EM.
    choice_ : criterion, candidates and values, after n_components="auto".
    result_ : xarray.Dataset of all this.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(500, 8))
    >>> X[rng.random(X.shape) < 0.2] = np.nan
    >>> model = streampca.PPCA(n_components=2).fit(X)
    >>> model.method_, round(float(model.noise_variance_), 2)
    ('em', 0.01)
    """

    _options = PPCAOptions
    _record = PPCAFit


@dataclass(repr=False, eq=False, kw_only=True)
class FactorAnalysis(_LatentModel):
    """Factor analysis of data that need not fit in memory, with missing values.

    x = W z + mu + noise,  z ~ N(0, I),  noise ~ N(0, psi_j) in feature j:  x ~ N(mu, W W' + diag(psi))

    Unlike in probabilistic PCA, each feature has its own noise variance, so that variance that a feature does not share
    with others is noise; scaling features only changes their units. There is no closed form: EM starts from the
    principal components. Complete data whose covariance fits the memory limit take one sweep in all; other data take
    one per iteration.

    Parameters
    ----------
    n_components, scale, missing, solver, tol, max_iter, accelerate, memory_limit, random_state, progress
        As for `PPCA`.
    criterion : "auto" or "heldout"
        For n_components="auto": the likelihood of held-out values.
    method : "auto" or "em"
        "em" takes one sweep per iteration; "auto" iterates on the covariance if possible.

    Attributes
    ----------
    components_ : (n_components, n_features), the loadings W', rotated so that W' diag(1 / psi) W is diagonal.
    noise_variance_ : (n_features,) psi.
    explained_variance_ : (n_components,) sums of squared loadings; explained_variance_ratio_ their share.
    mean_, scale_, log_likelihood_, log_likelihoods_, n_iter_, n_sweeps_, converged_, advice_, notes_, choice_ : as for
        `PPCA`.
    result_ : xarray.Dataset of all this.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.normal(size=(2000, 1)) @ np.ones((1, 4))
    >>> model = streampca.FactorAnalysis(n_components=1).fit(shared + rng.normal(size=(2000, 4)) * [1, 1, 2, 3])
    >>> np.sqrt(model.noise_variance_).round().tolist()
    [1.0, 1.0, 2.0, 3.0]
    """

    _options = FactorAnalysisOptions
    _record = FactorAnalysisFit
    max_iter: int = 1000

    def _fit(self, source: Source) -> Sweeps:
        sweeps = super()._fit(source)
        if not self.converged_:
            warnings.warn(f"FactorAnalysis did not converge: {self.advice_}", ConvergenceWarning, stacklevel=3)
        return sweeps

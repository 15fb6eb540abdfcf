"""The `MixtureOfPPCA` estimator: local principal components, one set for each cluster of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError, curing_gaps
from streampca.models.base import Opener
from streampca.models.pca.fit import signed
from streampca.progress import Progress, logger, silent
from streampca.solvers.base import NeedsFloat64, know_scaling
from streampca.solvers.mixture.loop import MixtureEM, MixtureFit
from streampca.solvers.mixture.start import CANDIDATES, OVERSAMPLE
from streampca.solvers.mixture.statistics import Flats, LogJoint, Mixture, log_sum
from streampca.sources import Source
from streampca.sources.wrappers import Cached
from streampca.sweep.matrix import Matrix, tile_dtype
from streampca.sweep.memory import (
    Cut,
    Footprint,
    cut,
    footprint,
    memory_limit,
    process_bytes,
    thread_count,
    threads_that_fit,
)
from streampca.sweep.scaling import Scaling, check_choice
from streampca.sweep.statistics import Statistic
from streampca.sweep.sweep import Sweeps, active_client

DEFAULT_TOL = 1e-3
DEFAULT_ITERATIONS = 200
# What to do about missing values.
CURE = "fill them (PPCA can: `impute`), or leave their samples out"


@dataclass(frozen=True)
class MixtureRequest:
    """What is asked for: checked before anything is read. Parameters are those of `MixtureOfPPCA`."""

    n_clusters: int
    n_components: int
    scale: str | None = None
    tol: float = DEFAULT_TOL
    max_iter: int = DEFAULT_ITERATIONS
    memory: str | int | float | None = None
    seed: int = 0
    progress: Progress = field(default=silent, compare=False)

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, (None, "unit"))
        for name in ("n_clusters", "n_components", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name}={value!r} cannot be used: give a whole number, 1 or more")
        if not (isinstance(self.tol, (int, float, np.number)) and 0 < self.tol < 1):
            raise InputError(f"tol={self.tol!r} cannot be used: give a number between 0 and 1, such as 1e-3")

    def check(self, source: Source) -> None:
        """Refuse data that such a mixture cannot be fitted to."""
        refuse_genotypes(source)
        n, d = source.shape
        if self.n_components >= d:
            raise InputError(
                f"{source.name}: n_components={self.n_components} leaves no noise of n_features = {d}: "
                + (f"give 1 to {d - 1}" if d > 1 else "2 features or more are needed")
            )
        least = self.n_clusters * (self.n_components + 2)
        if n < least:
            raise InputError(
                f"{source.name}: n_clusters={self.n_clusters} with n_components={self.n_components} needs {least} "
                f"samples or more (n_components + 2 a cluster), got n_samples = {n}: give fewer clusters or components"
            )

    def sweeps(self, source: Source) -> Sweeps:
        """Plan the sweeps of a fit; refuse if they do not fit the memory limit."""
        K, d = self.n_clusters, source.shape[1]
        width = min(d, self.n_components + OVERSAMPLE) + 1
        partial = 8 * d * max(K * width, CANDIDATES**2)
        # The mixture before and after a step and in the tiles' type, the sums, and a factorisation.
        driver = 4 * partial + 8 * 4 * d * width
        limit = memory_limit(self.memory)
        planned, need, threads = fit_in(source, K, width, partial, driver, limit, f"a mixture of {K} models")
        spare = limit - need.peak(threads)
        # Later sweeps read what is kept from memory.
        kept = Cached(source, min(spare * 3 // 4, source.n_bytes)) if worth_keeping(source) else source
        matrix = Matrix(
            kept, 0, tile_dtype(source.dtype), "error", self.scale, None, planned.partitions, planned.slab_length
        )
        return Sweeps(matrix, threads, self.progress)


def worth_keeping(source: Source) -> bool:
    """Tell whether what was read is worth memory: not if it lies there, nor if tasks run elsewhere."""
    return source.costly and active_client() is None


def fit_in(
    source: Source, n_clusters: int, width: int, partial: int, driver: int, limit: int, what: str
) -> tuple[Cut, Footprint, int]:
    """Return the cut along samples, what a sweep holds, and how many tasks fit at a time; refuse if none does.

    Parameters
    ----------
    width : directions a component, which rows and sums have.
    partial, driver : bytes that a partition hands on, and that the driver holds.
    """
    d = source.shape[1]
    planned = cut(source, 0, partial)
    length = Statistic().tile_length(d, tile_dtype(source.dtype).itemsize)
    # A tile and its deviations from one mean, in float64 in case the noise is small; a product; scores and densities.
    tile = 8 * (2 * length * d + d * width + 3 * length * n_clusters * (width + 3))
    need = footprint(source, planned, tile, partial, driver, process_bytes())
    return planned, need, threads_that_fit(need, limit, min(thread_count(), len(planned.partitions)), what)


def refuse_genotypes(source: Source) -> None:
    """Refuse genotypes, whose samples are not read one by one."""
    if source.is_genotypes:
        raise InputError(
            f"{source.name}: a mixture is not for genotypes; fit it to their scores: MixtureOfPPCA().fit(scores) for "
            "scores = PCA(n_components=10).fit_transform(...)"
        )


def fit_mixture(source: Source, request: MixtureRequest) -> tuple[MixtureFit, Sweeps]:
    """Fit the mixture to a source; returns it, with components by falling weight, and the sweeps that it took."""
    request.check(source)
    sweeps = request.sweeps(source)
    with sweeps, curing_gaps(CURE):
        variance = _mean_variance(sweeps)
        solver = MixtureEM(
            sweeps, request.n_clusters, request.n_components, variance, float(request.tol), request.max_iter,
            request.seed,
        )  # fmt: skip
        fit = solver.fit()
    return replace(fit, mixture=fit.mixture.take(np.argsort(-fit.mixture.weights, kind="stable"))), sweeps


def _mean_variance(sweeps: Sweeps) -> float:
    """Sweep for means and scales, in float64 where float32 does not do; returns the mean variance of a feature."""
    try:
        trace = know_scaling(sweeps, sweeps.moments())
    except NeedsFloat64:
        logger.info("values too small or too large for float32 tiles; beginning again in float64")
        sweeps.matrix = replace(sweeps.matrix, dtype=np.dtype(np.float64), scaling=None)
        trace = know_scaling(sweeps, sweeps.moments())
    return trace / sweeps.matrix.n_full


def log_joint(
    source: Source, mixture: Mixture, scaling: Scaling, memory: Any = None, progress: Progress = silent
) -> Array:
    """Return log pi_c + log N(x; mu_c, C_c) of samples, (n, K), in float64; one sweep."""
    refuse_genotypes(source)
    (n, d), (K, width) = source.shape, mixture.lengths.shape
    if d != len(scaling.mean):
        raise InputError(
            f"{source.name}: X has {d} features, but the mixture was fitted on {len(scaling.mean)} features; "
            "give the same features in the same order"
        )
    planned, _, threads = fit_in(source, K, width, 0, 8 * 3 * n * K, memory_limit(memory), "the density")
    matrix = Matrix(
        source, 0, np.dtype(np.float64), "error", None, scaling, planned.partitions, planned.slab_length
    )  # fmt: skip
    sweeps = Sweeps(matrix, threads, progress)
    with curing_gaps(CURE):
        pieces, _ = sweeps.run(LogJoint(mixture), "density", check=True)
    return np.concatenate(pieces)


class MixtureOfPPCA(DensityMixin, Opener):  # type: ignore[misc]
    """Mixture of probabilistic principal component analysers, for data that need not fit in memory.

    x | c ~ N(mu_c, W_c W_c' + s2_c I) with weights pi_c: clusters, each with principal axes of its own. Fitted by exact
    EM, one sweep an iteration, from means drawn by k-means++ (about a sweep each). The log-likelihood never falls, but
    where a component that emptied begins anew. EM finds the optimum near its start: compare `log_likelihoods_` of
    several values of random_state.

    Parameters
    ----------
    n_clusters : int
        Number of components K of the mixture.
    n_components : int
        Principal axes of each, k, fewer than there are features.
    scale : None or "unit"
        "unit" divides each feature by its standard deviation (n - 1) over all samples.
    tol : float
        EM stops when an iteration raises the mean log-likelihood of a sample by no more than this, and changes no
        weight by more than this, no mean by more than this share of the deviation of its component, and no covariance
        by more than this share of itself.
    max_iter : int
        Iterations after which it stops anyway; `advice_` then says so.
    memory : str, int or None
        Limit on the resident size of this process, as "600MB" or in bytes; half of what is available unless given.
    random_state : int, RandomState or None
        Seed of the start, and of `sample`.
    progress : callable or None
        Called with a `streampca.progress.Step` when a partition is done; its note has the log-likelihood.

    Attributes
    ----------
    weights_ : (n_clusters,) falling. A component that is left with too few samples begins anew elsewhere, and is left
        out, with a warning in the log, when that has happened n_clusters times: there may be fewer than asked for.
    means_ : (n_clusters, n_features), in units of the data.
    components_ : (n_clusters, n_components, n_features) of scaled features, if scaled; orthonormal rows, the largest
        entry of each positive.
    explained_variance_ : (n_clusters, n_components) variance along each axis, |w|^2 + s2; of maximum likelihood, 1 / n.
    noise_variance_ : (n_clusters,) s2.
    mean_, scale_ : (n_features,) of all samples; scale_ is None without scaling.
    log_likelihoods_ : (n_iter_,) of all samples, at the beginning of each iteration.
    converged_, advice_ : whether tol was reached, and what to know or do otherwise.
    n_iter_, n_sweeps_ : iterations, and reads of all the data.

    References
    ----------
    Tipping & Bishop (1999), Neural Computation 11, 443.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> rng = np.random.default_rng(0)
    >>> line = rng.normal(size=(500, 1))
    >>> X = np.vstack([line * [3, 3, 0], line * [0, 3, -3] + 20]) + rng.normal(size=(1000, 3)) / 10
    >>> model = streampca.MixtureOfPPCA(n_clusters=2, n_components=1).fit(X)
    >>> sorted(map(tuple, np.abs(model.components_[:, 0]).round(1).tolist()))
    [(0.0, 0.7, 0.7), (0.7, 0.7, 0.0)]
    """

    def __init__(
        self,
        n_clusters: int = 2,
        n_components: int = 1,
        *,
        scale: str | None = None,
        tol: float = DEFAULT_TOL,
        max_iter: int = DEFAULT_ITERATIONS,
        memory: str | int | None = None,
        random_state: Any = 0,
        progress: Progress | None = None,
    ):
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.scale = scale
        self.tol = tol
        self.max_iter = max_iter
        self.memory = memory
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> MixtureOfPPCA:  # noqa: ARG002
        """Fit the mixture to X: an array, a path, or anything that `open_source` takes.

        Parameters
        ----------
        X : samples x features.
        y : ignored.
        sample_dims : dimensions of labelled data that make up the samples; the first one unless given.
        """
        request = MixtureRequest(
            self.n_clusters, self.n_components, self.scale, self.tol, self.max_iter, self.memory,
            self._seed(), self.progress or silent,
        )  # fmt: skip
        source = self._source(X, sample_dims, reset=True)
        fit, sweeps = fit_mixture(source, request)
        self._labels = (source.samples, source.features)
        self._set_attributes(fit, sweeps)
        return self

    def _set_attributes(self, fit: MixtureFit, sweeps: Sweeps) -> None:
        mixture, scaling = fit.mixture, sweeps.matrix.scaling
        assert scaling is not None
        self.mean_, self.scale_ = scaling.mean, scaling.scale
        self.weights_ = mixture.weights
        self.means_ = scaling.restore(mixture.flats.centres)
        self.components_ = np.stack([signed(axes) for axes in mixture.flats.axes])
        self.explained_variance_ = mixture.variances
        self.noise_variance_ = mixture.noise
        self.log_likelihoods_ = np.array(fit.likelihoods)
        self.converged_ = fit.converged
        self.n_iter_, self.n_sweeps_ = len(fit.likelihoods), sweeps.n_sweeps
        slow = f"stopped short of tol={self.tol:g} after max_iter={self.max_iter}; raise max_iter, or tol"
        self.advice_ = "; ".join([*fit.notes, *([] if fit.converged else [slow])])

    @property
    def _mixture(self) -> Mixture:
        """The parameters about the centre of the data, in scaled units."""
        centres = self.means_ - self.mean_
        centres = centres if self.scale_ is None else centres / self.scale_
        lengths = np.sqrt(np.maximum(self.explained_variance_ - self.noise_variance_[:, None], 0.0))
        return Mixture(Flats(centres, self.components_), self.weights_, lengths, self.noise_variance_)

    def _log_joint(self, X: Any) -> Array:
        check_is_fitted(self)
        source = self._source(X, None, reset=False)
        scaling = Scaling(self.mean_, self.scale_)
        return log_joint(source, self._mixture, scaling, self.memory, self.progress or silent)

    def score_samples(self, X: Any) -> Array:
        """Return the log-density of each sample, (n,); of the scaled features, if scaled. One sweep.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        return log_sum(self._log_joint(X))

    def score(self, X: Any, y: None = None) -> float:  # noqa: ARG002
        """Return the mean log-density of the samples.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        y : ignored.
        """
        return float(np.mean(self.score_samples(X)))

    def predict(self, X: Any) -> Array:
        """Return the most probable component of each sample, (n,). One sweep.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        return np.asarray(self._log_joint(X).argmax(axis=1))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each component given each sample, (n, n_clusters). One sweep.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        found = self._log_joint(X)
        return np.asarray(np.exp(found - log_sum(found)[:, None]))

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion of X, -2 log L + p log n: lower is better. One sweep.

        p = K - 1 + K (d + 1 + d k - k (k - 1) / 2): weights, means, noise, and W, which is known but for a rotation.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        found = self.score_samples(X)
        K, k, d = self.components_.shape
        free = K - 1 + K * (d + 1 + d * k - k * (k - 1) // 2)
        return float(-2 * found.sum() + free * np.log(len(found)))

    def sample(self, n_samples: int = 1) -> tuple[Array, Array]:
        """Return samples drawn from the mixture, in units of the data, (n_samples, d), and the component of each.

        Parameters
        ----------
        n_samples : how many.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, (int, np.integer)) or n_samples < 1:
            raise InputError(f"n_samples={n_samples!r} cannot be used: give a whole number, 1 or more")
        random, mixture = check_random_state(self.random_state), self._mixture
        labels = np.repeat(np.arange(len(self.weights_)), random.multinomial(n_samples, self.weights_))
        X = random.standard_normal((n_samples, self.components_.shape[2])) * np.sqrt(self.noise_variance_[labels, None])
        for c, axes in enumerate(self.components_):
            z = random.standard_normal((int((labels == c).sum()), len(axes)))
            X[labels == c] += (z * mixture.lengths[c]) @ axes + mixture.flats.centres[c]
        return Scaling(self.mean_, self.scale_).restore(X), labels

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether there is a mixture."""
        return hasattr(self, "weights_")

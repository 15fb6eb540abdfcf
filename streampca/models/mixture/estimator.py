"""The `MixtureOfPPCA` estimator: local principal components, one set per cluster."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.base import Estimator, Likelihood
from streampca.models.mixture.fit import MixtureOfPPCAFit, fit_mixture, log_joint, probabilities
from streampca.models.mixture.options import MixtureOptions
from streampca.progress import Progress
from streampca.solvers.mixture.statistics import log_sum
from streampca.sources import Source
from streampca.sweep.sweep import Sweeps


@dataclass(repr=False, eq=False)
class MixtureOfPPCA(Likelihood, DensityMixin, Estimator[MixtureOfPPCAFit]):  # type: ignore[misc]
    """Mixture of probabilistic principal component analysers, for data that need not fit in memory.

    x | c ~ N(mu_c, W_c W_c' + s2_c I) with weights pi_c: clusters, each with principal axes of its own. Fitted by exact
    EM, one sweep per iteration, from means drawn by k-means++ (about one sweep each). The log-likelihood never
    decreases, unless an empty cluster is restarted. EM converges to a local optimum: compare `log_likelihood_` for
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
        EM stops when an iteration increases the mean log-likelihood per sample by at most this, and changes no weight
        by more than this, no mean by more than this share of the deviation of its cluster, and no covariance by more
        than this share of itself.
    max_iter : int
        Maximum number of iterations.
    memory_limit : str, int or None
        Limit on the memory that streampca adds to the process, as "600MB" or in bytes; half of the available memory by
        default.
    random_state : int, RandomState or None
        Seed of the start, and of `sample`.
    progress : callable or None
        Called with a `streampca.progress.Step` when a partition is done; its note has the log-likelihood.

    Attributes
    ----------
    weights_ : (n_clusters,) in descending order. A cluster with too few samples restarts elsewhere; after n_clusters
        restarts it is dropped, with a warning in the log, so that there may be fewer clusters than requested.
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

    _options = MixtureOptions
    _record = MixtureOfPPCAFit
    _shown = (
        "weights", "means", "components", "explained_variance", "noise_variance", "log_likelihood",
        "log_likelihoods", "n_iter",
    )  # fmt: skip

    n_clusters: int = 2
    n_components: int = 1
    _: KW_ONLY
    scale: str | None = None
    tol: float = 1e-3
    max_iter: int = 200
    memory_limit: str | int | None = None
    random_state: Any = 0
    progress: Progress | None = None

    def _fit(self, source: Source) -> Sweeps:
        fitted, sweeps = fit_mixture(source, self._checked_options(), **self._how)
        self._keep(fitted, source, source)
        return sweeps

    def _log_joint(self, X: Any) -> Array:
        check_is_fitted(self)
        return log_joint(self._source(X, None, reset=False), self._fitted, **self._how)

    def score_samples(self, X: Any) -> Array:
        """Return the log-density of each sample, (n,); of the scaled features, if scaled. One sweep.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        return log_sum(self._log_joint(X))

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
        return probabilities(self._log_joint(X))

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion of X, -2 log L + p log n: lower is better. One sweep.

        p = K - 1 + K (d + 1 + d k - k (k - 1) / 2): weights, means, noise, and W, which is known but for a rotation.

        Parameters
        ----------
        X : samples x features: an array, a path, or anything that `open_source` takes.
        """
        density = self.score_samples(X)
        K, k, d = self._fitted.components.shape
        free = K - 1 + K * (d + 1 + d * k - k * (k - 1) // 2)
        return float(-2 * density.sum() + free * np.log(len(density)))

    def sample(self, n_samples: int = 1) -> tuple[Array, Array]:
        """Return samples drawn from the mixture, in units of the data, (n_samples, d), and the component of each.

        Parameters
        ----------
        n_samples : number of samples.
        """
        check_is_fitted(self)
        if not isinstance(n_samples, (int, np.integer)) or n_samples < 1:
            raise InputError(f"n_samples must be an integer >= 1, got {n_samples!r}")
        random, fitted = check_random_state(self.random_state), self._fitted
        mixture = fitted.mixture
        labels = np.repeat(np.arange(len(fitted.weights)), random.multinomial(n_samples, fitted.weights))
        X = random.standard_normal((n_samples, len(fitted.mean))) * np.sqrt(fitted.noise_variance[labels, None])
        for c, axes in enumerate(fitted.components):
            z = random.standard_normal((int((labels == c).sum()), len(axes)))
            X[labels == c] += (z * mixture.lengths[c]) @ axes + mixture.flats.centres[c]
        return fitted.scaling.restore(X), labels

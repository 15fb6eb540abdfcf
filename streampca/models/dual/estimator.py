"""Dual probabilistic PCA: the same model read the other way round, over latent points instead of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.errors import hint_for_missing
from streampca.models.base import Opener, like
from streampca.models.dual.options import DualPPCAOptions
from streampca.models.pca.fit import fit_pca, scores_of
from streampca.models.pca.options import PCAOptions
from streampca.models.ppca.choose import closed_likelihood
from streampca.models.ppca.fit import component_count
from streampca.progress import Progress, silent
from streampca.solvers.em.loop import LEAST_NOISE


class DualPPCA(Opener):
    """Dual probabilistic PCA: latent points by maximum likelihood, weights integrated out.

    Probabilistic PCA, Y = Z W' + noise for centred data Y (n x d), gives the latent points z_n a prior N(0, I),
    integrates them out, and maximises over the weights W: samples are independent, y_n ~ N(0, W W' + s2 I), and the
    answer is in the eigenvectors of the d x d covariance Y'Y / n. The dual gives the weights w_j that prior, integrates
    them out, and maximises over the latent points Z: now features are independent,

        y_j ~ N(0, Z Z' + s2 I),   Z = U (L - s2 I)^1/2   for U, L the leading eigenpairs of Y Y' / d  (n x n)

    Both matrices have the same non-zero eigenvalues up to n / d, and the eigenvectors of the one are the scores of the
    other: the columns of Z span the same space as the scores of `PPCA` and `PCA`, and differ from them in length alone.

    Read so, every feature is a function of the latent point, drawn from a Gaussian process with the linear kernel
    k(z, z') = z'z + s2 [z = z']: its values at the n points have the covariance Z Z' + s2 I. `inverse_transform` is the
    mean of that process at new points. Another kernel in its place makes the functions curved: the Gaussian process
    latent variable model.

    Centring takes one of the n dimensions: likelihood and noise are those of the other n - 1.

    Parameters
    ----------
    n_components : int or None
        Latent dimensions, at most min(n_samples, n_features) - 1; None for as many as there can be. Missing values are
        refused; missing genotypes stand at the mean.
    scale, solver, tol, memory_limit, random_state, progress
        As for `PCA`.

    Attributes
    ----------
    latent_ : (n_samples, n_components) Z, along principal axes, longest first.
    eigenvalues_ : (n_components,) of Y Y' / d.
    noise_variance_ : s2, the mean of the other eigenvalues.
    components_ : (n_components, n_features) the same unit rows as of `PCA`.
    mean_, scale_ : (n_features,); scale_ is None without scaling.
    log_likelihood_ : of all features.
    certificate_, n_sweeps_ : as of `PCA`.

    References
    ----------
    Lawrence (2005), J. Mach. Learn. Res. 6, 1783.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 300)) + 0.1 * rng.normal(size=(20, 300))
    >>> model = streampca.DualPPCA(n_components=2).fit(X)
    >>> model.latent_.shape, round(float(model.noise_variance_), 2)
    ((20, 2), 0.01)
    """

    def __init__(
        self,
        n_components: Any = None,
        *,
        scale: str | None = "auto",
        solver: str = "auto",
        tol: float = 1e-3,
        memory_limit: str | int | None = None,
        random_state: Any = 0,
        progress: Progress | None = None,
    ):
        self.n_components = n_components
        self.scale = scale
        self.solver = solver
        self.tol = tol
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> DualPPCA:  # noqa: ARG002
        """Find the latent points of the samples of X: an array, a path, or anything that `open_source` takes.

        Parameters
        ----------
        X : samples x features.
        y : ignored.
        sample_dims : dimensions of labelled data that make up the samples; the first one unless given.
        """
        source = self._source(X, sample_dims, reset=True)
        options = DualPPCAOptions.of(self._parameters())
        k = component_count(options.n_components, source)
        pca = PCAOptions.of({**dict(options), "n_components": k})
        with hint_for_missing("fill them, or use PPCA, which models them"):
            found, sweeps = fit_pca(
                source, pca, memory=self.memory_limit, progress=self.progress or silent, extra_sweeps=1
            )
        scores, found = scores_of(found, sweeps)
        n, d = found.n_samples, len(found.mean)
        values = found.explained_variance * (n - 1) / d
        left = found.total_variance * (n - 1) / d - float(values.sum())
        noise = max(left / max(n - 1 - k, 1), LEAST_NOISE * (float(values.sum()) + max(left, 0.0)) / (n - 1))
        lengths = np.sqrt(np.maximum(values - noise, 0.0))
        unit = np.where(values > 0, np.sqrt(values * d), 1.0)
        self.latent_ = scores.astype(np.float64) / unit * lengths
        self.eigenvalues_ = values
        self.noise_variance_ = noise
        self.components_ = found.components
        self.mean_, self.scale_ = found.mean, found.scale
        # The same formula as of PPCA, with samples for features: d of them, n - 1 dimensions.
        self.log_likelihood_ = closed_likelihood(values, float(values.sum()) + max(left, 0.0), d, n - 1)
        self.certificate_ = found.certificate
        self.n_sweeps_ = found.n_sweeps
        self._labels = found.axes(sweeps.matrix.source)
        self._scaling = found.scaling
        return self

    def fit_transform(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> Any:  # noqa: ARG002
        """Return the latent points of the samples of X.

        Parameters
        ----------
        X, y, sample_dims : as of `fit`.
        """
        self.fit(X, sample_dims=sample_dims)
        return like(X, self.latent_, self._source(X, sample_dims, reset=False))

    def inverse_transform(self, Z: Any) -> Array:
        """Return the mean of the Gaussian process at latent points: z'(Z'Z + s2 I)^-1 Z'Y, in units of the data.

        Parameters
        ----------
        Z : points x components.
        """
        check_is_fitted(self)
        lengths = np.linalg.norm(self.latent_, axis=0)
        roots = np.sqrt(self.eigenvalues_ * len(self.mean_))
        weights = (lengths * roots / (lengths**2 + self.noise_variance_))[:, None] * self.components_
        return np.asarray(self._scaling.restore(np.asarray(Z) @ weights))

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether there are latent points."""
        return hasattr(self, "latent_")

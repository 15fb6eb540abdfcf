"""The `DualPPCA` estimator: probabilistic PCA over latent points instead of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streampca._typing import Array
from streampca.models.base import Estimator, scores_like
from streampca.models.dual.fit import DualPPCAFit, fit_dual
from streampca.models.dual.options import DualPPCAOptions
from streampca.progress import Progress
from streampca.sources import Source
from streampca.sweep.sweep import Sweeps


@dataclass(repr=False, eq=False)
class DualPPCA(Estimator[DualPPCAFit]):
    """Dual probabilistic PCA: latent points by maximum likelihood, weights integrated out.

    Probabilistic PCA, Y = Z W' + noise for centred data Y (n x d), gives the latent points z_n a prior N(0, I),
    integrates them out, and maximises over the weights W: samples are independent, y_n ~ N(0, W W' + s2 I), and the
    answer is in the eigenvectors of the d x d covariance Y'Y / n. The dual gives the weights w_j that prior, integrates
    them out, and maximises over the latent points Z: now features are independent,

        y_j ~ N(0, Z Z' + s2 I),   Z = U (L - s2 I)^1/2   for U, L the leading eigenpairs of Y Y' / d  (n x n)

    Both matrices have the same non-zero eigenvalues up to n / d, and the eigenvectors of the one are the scores of the
    other: the columns of Z span the same space as the scores of `PPCA` and `PCA`, and differ from them in length alone.

    Every feature is then a function of the latent point, drawn from a Gaussian process with the linear kernel
    k(z, z') = z'z + s2 [z = z']: its values at the n points have the covariance Z Z' + s2 I. `inverse_transform` is the
    mean of that process at new points. Other kernels give the Gaussian process latent variable model.

    Centring removes one of the n dimensions: likelihood and noise are those of the other n - 1.

    Parameters
    ----------
    n_components : int or None
        Number of latent dimensions, at most min(n_samples, n_features) - 1, which is the default. Missing values raise
        an error; missing genotypes are replaced by the mean.
    scale, solver, tol, memory_limit, random_state, progress
        As for `PCA`.

    Attributes
    ----------
    latent_ : (n_samples, n_components) Z, along principal axes, longest first.
    eigenvalues_ : (n_components,) of Y Y' / d.
    noise_variance_ : s2, the mean of the other eigenvalues.
    components_, explained_variance_ : as for `PCA`.
    mean_, scale_ : (n_features,); scale_ is None without scaling.
    log_likelihood_ : of all features.
    certificate_, converged_, advice_, notes_, n_sweeps_ : as for `PCA`.
    result_ : xarray.Dataset of all this; its scores are the latent points.

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

    _options = DualPPCAOptions
    _record = DualPPCAFit
    _shown = (
        "latent", "eigenvalues", "noise_variance", "log_likelihood", "components", "explained_variance", "certificate",
    )  # fmt: skip

    n_components: Any = None
    _: KW_ONLY
    scale: str | None = "auto"
    solver: str = "auto"
    tol: float = 1e-3
    memory_limit: str | int | None = None
    random_state: Any = 0
    progress: Progress | None = None

    def _fit(self, source: Source) -> Sweeps:
        fitted, sweeps = fit_dual(source, self._checked_options(), **self._how)
        self._keep(fitted, source, sweeps.matrix.source)
        return sweeps

    def fit_transform(self, X: Any, y: None = None, *, sample_dims: Sequence[str] | None = None) -> Any:  # noqa: ARG002
        """Return the latent points of the samples of X.

        Parameters
        ----------
        X, y, sample_dims : as for `fit`.
        """
        self.fit(X, sample_dims=sample_dims)
        return scores_like(X, self._fitted.latent, self._source(X, sample_dims, reset=False))

    def inverse_transform(self, Z: Any) -> Array:
        """Return the mean of the Gaussian process at latent points: z'(Z'Z + s2 I)^-1 Z'Y, in units of the data.

        Parameters
        ----------
        Z : points x components.
        """
        check_is_fitted(self)
        return np.asarray(self._fitted.scaling.restore(np.asarray(Z) @ self._fitted.weights))

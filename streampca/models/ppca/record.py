"""The fitted record of probabilistic PCA and factor analysis, and what follows from it alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.genetics.matching import Match
from streampca.models.pca.record import PCAFit
from streampca.models.ppca.choose import Choice
from streampca.models.record import Fitted
from streampca.solvers.em.factors import Factors, Known
from streampca.solvers.em.loop import LEAST_NOISE
from streampca.sources import Axis, Source
from streampca.sweep.scaling import Scaling


@dataclass(frozen=True, kw_only=True)
class PPCAFit(Fitted):
    """A fitted model x = W z + mu + noise, along principal axes; variances are of maximum likelihood (1 / n).

    Attributes
    ----------
    factors, scaling : the parameters in units of the scaled features, about the centre of `scaling`.
    log_likelihoods : log-likelihood of all samples after each iteration; one value in closed form.
    change : mean squared sine of the angles by which the last EM iteration turned the subspace; 0 in closed form.
    certificate, certificate_method : (k,) of the principal components that a closed form uses; None after EM.
    posterior : means and deviations of z for the fitted samples, if the fit computed them.
    choice : how k was chosen, if it was.
    others : as for `Fitted`.
    """

    factors: Factors
    scaling: Scaling
    log_likelihoods: tuple[float, ...]
    change: float
    certificate: Array | None
    method: str
    n_iterations: int
    sample_missing: Array | None = None
    posterior: Known | None = None
    choice: Choice | None = None
    certificate_method: str | None = None

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all samples."""
        return self.log_likelihoods[-1]

    @property
    def n_components(self) -> int:
        """Number of latent dimensions, k."""
        return self.factors.n_components

    @property
    def n_iter(self) -> int:
        """Number of iterations, at least 1."""
        return max(1, self.n_iterations)

    @property
    def per_feature_noise(self) -> bool:
        """Whether each feature has its own noise variance: factor analysis."""
        return isinstance(self.factors.noise, np.ndarray)

    @property
    def noise_variance(self) -> Any:
        """Noise variance, of all features or of each."""
        return self.factors.noise

    @property
    def lengths(self) -> Array:
        """Length of each column of W."""
        return np.asarray(np.linalg.norm(self.factors.W, axis=0))

    @property
    def loadings(self) -> Array:
        """W', (k, d)."""
        return self.factors.W.T

    @property
    def components(self) -> Array:
        """Principal axes (k, d), unit rows."""
        return np.asarray(self.factors.W.T / np.maximum(self.lengths, np.finfo(float).tiny)[:, None])

    @property
    def explained_variance(self) -> Array:
        """Variance of the model along each axis, |w|^2 + s2 (1 / n); |w|^2 for factor analysis."""
        return np.asarray(self.lengths**2 + (0.0 if self.per_feature_noise else self.factors.noise))

    @property
    def total_variance(self) -> float:
        """Trace of the model's covariance."""
        noise = np.broadcast_to(self.factors.noise, len(self.factors.W))
        return float((self.factors.W**2).sum() + noise.sum())

    @property
    def explained_variance_ratio(self) -> Array:
        """Share of the model's variance along each axis."""
        return self.explained_variance / self.total_variance

    @property
    def mean(self) -> Array:
        """Mean of each feature in the model, in units of the data."""
        return np.asarray(self.scaling.restore(self.factors.shift))

    @property
    def scale(self) -> Array | None:
        """Scale of each feature; None if features are not scaled."""
        return self.scaling.scale

    @property
    def scores(self) -> Array | None:
        """Posterior means of the fitted samples, if the fit computed them."""
        return None if self.posterior is None else self.posterior.mean

    def expected(self, Z: Any) -> Any:
        """Return samples without noise from latent points, NumPy or Dask: W z + mu, in units of the data."""
        return self.scaling.restore(Z @ self.factors.W.T + self.factors.shift)

    def without_noise(self) -> PPCAFit:
        """Return the limit of no noise, as close as double precision resolves."""
        noise = 1e-10 * float((self.factors.W**2).sum()) * np.ones_like(self.factors.noise)
        factors = replace(self.factors, noise=noise if self.per_feature_noise else float(noise))
        return replace(self, factors=factors, tile_dtype="float64")

    def axes(self, source: Source) -> tuple[Axis, Axis]:
        """Return the samples and features of the source that was swept: all are used."""
        return source.samples, source.features

    def matching(self, match: Match) -> PPCAFit:
        """Return the model of the variants that match, for data that count the alleles as the new data do."""
        sign = np.where(match.flipped, -1.0, 1.0)
        part = self.factors.part(match.fitted)
        factors = replace(part, W=part.W * sign[:, None], shift=part.shift * sign)
        mean = self.scaling.mean[match.fitted]
        scaling = replace(self.scaling.take(match.fitted), mean=np.where(match.flipped, 2 - mean, mean))
        return replace(self, factors=factors, scaling=scaling)


def likelihood_units(fitted: PCAFit) -> tuple[Array, float]:
    """Return eigenvalues and trace of maximum likelihood: with 1 / n."""
    shrink = (fitted.n_samples - 1) / fitted.n_samples
    return fitted.explained_variance * shrink, fitted.total_variance * shrink


def closed_form(fitted: PCAFit, per_feature_noise: bool = False) -> Factors:
    """Return the maximum likelihood parameters for complete data, from leading eigenvalues and the trace.

    s2 = (trace - sum_i lambda_i) / (d - k),   W = V (Lambda - s2 I)^1/2,   eigenvalues with 1 / n

    With noise per feature this is the start of EM: psi_j is the variance that W does not explain.

    References: Tipping & Bishop (1999), J. R. Stat. Soc. B 61, 611, eq. 7 and 8.
    """
    n, d, k = fitted.n_samples, len(fitted.mean), len(fitted.components)
    values, trace = likelihood_units(fitted)
    noise = max((trace - float(values.sum())) / (d - k), LEAST_NOISE * trace / d)
    W = fitted.components.T * np.sqrt(np.maximum(values - noise, 0.0))
    if not per_feature_noise:
        return Factors(W, np.zeros(d), noise)
    assert fitted.squares is not None
    variances = fitted.squares / n
    left = np.maximum(variances - (W**2).sum(axis=1), 0.05 * np.where(variances > 0, variances, noise))
    return Factors(W, np.zeros(d), left)

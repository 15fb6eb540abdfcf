"""What the spectrum of complete data determines: the parameters, and criteria of the number of components."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from streampca._typing import Array
from streampca.models.pca.record import PCAFit
from streampca.solvers.em.factors import Factors
from streampca.solvers.em.loop import LEAST_NOISE


def simplest(gains: Array) -> int:
    """Return the smallest number of components as good as the best, within the standard error of their difference.

    Parameters
    ----------
    gains : (candidates, samples) of 1, 2, ... components: what each sample adds to the criterion.
    """
    short = gains[int(np.argmax(gains.sum(axis=1)))] - gains
    error = np.sqrt(gains.shape[1]) * short.std(axis=1)
    return int(np.argmax(short.sum(axis=1) <= error)) + 1


def closed_likelihood(values: Array, trace: float, n: int, d: int) -> float:
    """Log-likelihood of n samples at the closed form, from the eigenvalues (1 / n) that it keeps and the trace."""
    left = max(trace - float(values.sum()), 0.0)
    noise = max(left / max(d - len(values), 1), LEAST_NOISE * trace / d)
    variances = np.maximum(values, noise)
    logdet = float(np.log(variances).sum()) + (d - len(values)) * math.log(noise)
    return -0.5 * n * (d * math.log(2 * math.pi) + logdet + float((values / variances).sum()) + left / noise)


def bic(values: Array, trace: float, n: int, d: int) -> Array:
    """Return log-likelihood less half the parameters times log n, for 1, 2, ... of these eigenvalues (1 / n)."""
    k = np.arange(1, len(values) + 1)
    likelihood = np.array([closed_likelihood(values[:i], trace, n, d) for i in k])
    parameters = d * k - k * (k - 1) / 2 + 1 + d
    return np.asarray(likelihood - 0.5 * parameters * math.log(n))


def evidence(values: Array, trace: float, n: int, d: int) -> Array:
    """Return Minka's approximation to the log-evidence of 1, 2, ... components, from leading eigenvalues (1 / n).

    Unknown eigenvalues are replaced by their mean, which follows from the trace.

    References: Minka (2000), Automatic choice of dimensionality for PCA, NIPS 13, eq. 30 (Laplace's method).
    """
    known = np.append(values, np.full(d - len(values), max(trace - float(values.sum()), 0.0) / max(d - len(values), 1)))
    known = np.maximum(known, LEAST_NOISE * trace / d)
    curve = np.empty(len(values))
    for k in range(1, len(values) + 1):
        noise = max((trace - float(values[:k].sum())) / max(d - k, 1), LEAST_NOISE * trace / d)
        i = np.arange(1, k + 1)
        prior = -k * math.log(2) + float((gammaln((d - i + 1) / 2) - math.log(math.pi) * (d - i + 1) / 2).sum())
        fitted = np.append(known[:k], np.full(d - k, noise))
        hessian = 0.0
        for a in range(k):
            gaps = np.maximum(known[a] - known[a + 1 :], LEAST_NOISE * known[a])
            steep = np.maximum(1 / fitted[a + 1 :] - 1 / fitted[a], LEAST_NOISE / fitted[a])
            hessian += float((np.log(gaps) + np.log(steep) + math.log(n)).sum())
        free = d * k - k * (k + 1) / 2
        curve[k - 1] = (
            prior - 0.5 * n * float(np.log(known[:k]).sum()) - 0.5 * n * (d - k) * math.log(noise)
            + 0.5 * (free + k) * math.log(2 * math.pi) - 0.5 * hessian - 0.5 * k * math.log(n)
        )  # fmt: skip
    return curve


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
    n, d, k = fitted.n_samples, fitted.n_features, fitted.n_components
    values, trace = likelihood_units(fitted)
    noise = max((trace - float(values.sum())) / (d - k), LEAST_NOISE * trace / d)
    W = fitted.components.T * np.sqrt(np.maximum(values - noise, 0.0))
    if not per_feature_noise:
        return Factors(W, np.zeros(d), noise)
    assert fitted.squares is not None
    variances = fitted.squares / n
    left = np.maximum(variances - (W**2).sum(axis=1), 0.05 * np.where(variances > 0, variances, noise))
    return Factors(W, np.zeros(d), left)

"""Choice of the number of components: criteria from the spectrum of complete data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from streampca._typing import Array
from streampca.solvers.em.loop import LEAST_NOISE


@dataclass(frozen=True)
class Choice:
    """A number of components, and how it was chosen.

    Attributes
    ----------
    criterion : "evidence", "bic" or "heldout".
    candidates : numbers of components that were compared.
    values : of the criterion, for each; larger is better.
    best : the chosen number.
    """

    criterion: str
    candidates: Array
    values: Array
    best: int

    @property
    def note(self) -> str:
        """The choice in words."""
        names = {"evidence": "Minka's evidence", "bic": "BIC", "heldout": "the likelihood of held-out values"}
        last = self.best == self.candidates[-1]
        more = "; it is the largest candidate, there may be more" if last else ""
        return f"{self.best} components chosen by {names[self.criterion]}{more}"


def simplest(gains: Array) -> int:
    """Return the least number of components as good as the best, within the standard error of their difference.

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

    Eigenvalues that are not known stand at their mean, which the trace gives.

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

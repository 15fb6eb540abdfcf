"""The fit of dual probabilistic PCA."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import hint_for_missing
from streampca.models.dual.options import DualPPCAOptions
from streampca.models.pca.fit import fit_pca, plan_pca, scores_of
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit
from streampca.models.ppca.choose import closed_likelihood
from streampca.models.ppca.fit import component_count
from streampca.progress import Progress, silent
from streampca.solvers.choose import Plan
from streampca.solvers.em.loop import LEAST_NOISE
from streampca.sources import Source
from streampca.sweep.sweep import Sweeps

MISSING_HINT = "fill them, or use PPCA, which models them"  # for missing values


@dataclass(frozen=True)
class DualPPCAFit:
    """Fitted latent points Z, and the principal components that they follow from.

    Attributes
    ----------
    pca : the principal components of the samples.
    latent : (n, k) Z, along principal axes, longest first.
    eigenvalues : (k,) of Y Y' / d.
    noise_variance : s2, the mean of the other eigenvalues.
    log_likelihood : of all features.
    """

    pca: PCAFit
    latent: Array
    eigenvalues: Array
    noise_variance: float
    log_likelihood: float

    @property
    def genotypes(self) -> bool:
        """Whether the features are variants."""
        return self.pca.genotypes

    @property
    def weights(self) -> Array:
        """(k, d) map from latent points to the mean of the Gaussian process: (Z'Z + s2 I)^-1 Z'Y."""
        lengths = np.linalg.norm(self.latent, axis=0)
        roots = np.sqrt(self.eigenvalues * len(self.pca.mean))
        return np.asarray((lengths * roots / (lengths**2 + self.noise_variance))[:, None] * self.pca.components)


def fit_dual(
    source: Source, options: DualPPCAOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[DualPPCAFit, Sweeps]:
    """Fit dual probabilistic PCA; return it, and the sweeps to continue with.

    Parameters
    ----------
    source, options : the data and the options of the model.
    memory, progress : as for `fit_pca`.
    """
    started = time.monotonic()
    k = component_count(options.n_components, source)
    with hint_for_missing(MISSING_HINT):
        pca, sweeps = fit_pca(source, pca_options(options, k), memory=memory, progress=progress, extra_sweeps=1)
    scores, pca = scores_of(pca, sweeps)
    n, d = pca.n_samples, len(pca.mean)
    values = pca.explained_variance * (n - 1) / d
    left = pca.total_variance * (n - 1) / d - float(values.sum())
    noise = max(left / max(n - 1 - k, 1), LEAST_NOISE * (float(values.sum()) + max(left, 0.0)) / (n - 1))
    lengths = np.sqrt(np.maximum(values - noise, 0.0))
    unit = np.where(values > 0, np.sqrt(values * d), 1.0)
    # The likelihood of PPCA with samples and features exchanged: d samples of n - 1 dimensions.
    likelihood = closed_likelihood(values, float(values.sum()) + max(left, 0.0), d, n - 1)
    pca = replace(pca, seconds=time.monotonic() - started, scores=None)
    return DualPPCAFit(pca, scores.astype(np.float64) / unit * lengths, values, noise, likelihood), sweeps


def plan_dual(source: Source, options: DualPPCAOptions, *, memory: Any = None) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    k = component_count(options.n_components, source)
    return plan_pca(source, pca_options(options, k), memory=memory, extra_sweeps=1)


def pca_options(options: DualPPCAOptions, n_components: int) -> PCAOptions:
    """Return the options of the principal components."""
    return PCAOptions.of({**dict(options), "n_components": n_components})

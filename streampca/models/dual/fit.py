"""The fit of dual probabilistic PCA."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streampca._typing import Array
from streampca.errors import hint_for_missing
from streampca.models.dual.options import DualPPCAOptions
from streampca.models.pca.fit import fit_pca, plan_pca, with_scores
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import PCAFit
from streampca.models.ppca.fit import component_count
from streampca.models.ppca.spectrum import closed_likelihood
from streampca.models.record import Attribute, Variable
from streampca.progress import Progress, silent
from streampca.solvers.choose import Plan
from streampca.solvers.em.loop import LEAST_NOISE
from streampca.sources import Source
from streampca.sweep.sweep import Sweeps

MISSING_HINT = "fill them, or use PPCA, which models them"  # for missing values


@dataclass(frozen=True, kw_only=True)
class DualPPCAFit(PCAFit):
    """Fitted latent points Z, with the principal components that they follow from.

    Attributes
    ----------
    latent : (n, k) Z, along principal axes, longest first.
    others : as for `PCAFit`.
    """

    VARIABLES: ClassVar[tuple[Variable, ...]] = (
        *PCAFit.VARIABLES,
        Variable("scores", "S component", "latent points Z", "latent"),
        Variable("dual_eigenvalue", "component", "eigenvalues of Y Y' / d for the centred data Y", "eigenvalues"),
    )
    ATTRIBUTES: ClassVar[tuple[Attribute, ...]] = (
        *PCAFit.ATTRIBUTES,
        Attribute("total_log_likelihood", of="log_likelihood"),
    )

    latent: Array

    @property
    def eigenvalues(self) -> Array:
        """(k,) eigenvalues of Y Y' / d."""
        return self.explained_variance * (self.n_samples - 1) / self.n_features

    @property
    def _others(self) -> float:
        """Sum of the other eigenvalues of Y Y' / d."""
        return self.total_variance * (self.n_samples - 1) / self.n_features - float(self.eigenvalues.sum())

    @property
    def _trace(self) -> float:
        return float(self.eigenvalues.sum()) + max(self._others, 0.0)

    @property
    def noise_variance(self) -> float:
        """s2, the mean of the other eigenvalues."""
        n, k = self.n_samples, self.n_components
        return max(self._others / max(n - 1 - k, 1), LEAST_NOISE * self._trace / (n - 1))

    @property
    def log_likelihood(self) -> float:
        """Log-likelihood of all features: that of PPCA for d samples of n - 1 dimensions."""
        return closed_likelihood(self.eigenvalues, self._trace, self.n_features, self.n_samples - 1)

    @property
    def weights(self) -> Array:
        """(k, d) map from latent points to the mean of the Gaussian process: (Z'Z + s2 I)^-1 Z'Y."""
        lengths = np.linalg.norm(self.latent, axis=0)
        roots = np.sqrt(self.eigenvalues * self.n_features)
        return np.asarray((lengths * roots / (lengths**2 + self.noise_variance))[:, None] * self.components)


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
    pca = replace(with_scores(pca, sweeps), seconds=time.monotonic() - started)
    assert pca.scores is not None
    fitted = DualPPCAFit(**{**vars(pca), "scores": None}, latent=pca.scores.astype(np.float64))
    values = fitted.eigenvalues
    unit = np.where(values > 0, np.sqrt(values * fitted.n_features), 1.0)
    lengths = np.sqrt(np.maximum(values - fitted.noise_variance, 0.0))
    return replace(fitted, latent=fitted.latent / unit * lengths), sweeps


def plan_dual(source: Source, options: DualPPCAOptions, *, memory: Any = None) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    k = component_count(options.n_components, source)
    return plan_pca(source, pca_options(options, k), memory=memory, extra_sweeps=1)


def pca_options(options: DualPPCAOptions, n_components: int) -> PCAOptions:
    """Return the options of the principal components."""
    return PCAOptions.of({**dict(options), "n_components": n_components, "resolve": "all"})

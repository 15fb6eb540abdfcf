"""Options of mixtures of probabilistic PCA."""

from __future__ import annotations

from pydantic import Field

from streampca.validation import Between, Count, Options, PlainScale, Seed


class MixtureOptions(Options):
    """Mixture of probabilistic PCA: local principal components, one set per cluster."""

    n_clusters: Count = Field(default=2, description="Number of clusters.")
    n_components: Count = Field(default=1, description="Number of components of each cluster.")
    scale: PlainScale = Field(default=None, description="unit: divide features by their standard deviation.")
    tol: Between = Field(default=1e-3, description="EM stops when the log-likelihood per sample changes by less.")
    max_iter: Count = Field(default=200, description="Maximum number of EM iterations.")
    random_state: Seed = Field(default=0, description="Seed of the initial clusters.")

"""Options of mixtures of probabilistic PCA."""

from __future__ import annotations

from streampca.validation import Between, Count, Options, PlainScale, Seed, option


class MixtureOptions(Options):
    """Mixture of probabilistic PCA: local principal components, one set per cluster."""

    n_clusters: Count = option(default=2, description="Number of clusters.")
    n_components: Count = option(default=1, description="Number of components of each cluster.")
    scale: PlainScale = option(default=None, description="unit: divide features by their standard deviation.")
    tol: Between = option(default=1e-3, description="EM stops when the log-likelihood per sample changes by less.")
    max_iter: Count = option(default=200, description="Maximum number of EM iterations.")
    random_state: Seed = option(default=0, description="Seed of the initial clusters.")

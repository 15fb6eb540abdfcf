"""Mixture of probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import SHARED_ATTRIBUTES, Kind

KIND = Kind(
    name="mixture",
    title="Mixture of probabilistic PCA",
    record="streampca.models.mixture.options:MixtureOptions",
    example="streampca mixture points.zarr --n-clusters 3 -k 2",
    estimator="streampca.models.mixture.estimator:MixtureOfPPCA",
    dataset="streampca.models.mixture.dataset",
    arrays=(
        "weights",
        "means",
        "components",
        "explained_variance",
        "noise_variance",
        "log_likelihood",
        "mean",
        "scale",
        "missing",
    ),
    attributes=(*SHARED_ATTRIBUTES, "n_iterations", "total_log_likelihood"),
    dimensions={
        "weights": ("cluster",),
        "means": ("cluster", "F"),
        "components": ("cluster", "component", "F"),
        "explained_variance": ("cluster", "component"),
        "noise_variance": ("cluster",),
        "probability": ("S", "cluster"),
    },
    genotypes=False,
    opening="A mixture of probabilistic principal component analysers (Tipping & Bishop 1999b) of {} was fitted",
    fit="streampca.results.fit.mixture:fit",
    plan="streampca.results.fit.mixture:plan",
    summary="streampca.results.summary:mixture",
    methods="streampca.results.methods:likelihood",
)

"""Mixture of probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import EM_ATTRIBUTES, Kind

KIND = Kind(
    name="mixture",
    title="Mixture of probabilistic PCA",
    example="streampca mixture points.zarr --n-clusters 3 -k 2",
    opening="A mixture of probabilistic principal component analysers (Tipping & Bishop 1999b) of {} was fitted",
    record="streampca.models.mixture.options:MixtureOptions",
    estimator="streampca.models.mixture.estimator:MixtureOfPPCA",
    fitted="streampca.models.mixture.fit:MixtureOfPPCAFit",
    fit="streampca.models.mixture.fit:fit_with_probabilities",
    plan="streampca.models.mixture.fit:plan_mixture",
    genotypes=False,
    arrays=(
        "weights", "means", "components", "explained_variance", "noise_variance", "log_likelihood", "mean", "scale",
        "missing",
    ),
    attributes=EM_ATTRIBUTES,
)  # fmt: skip

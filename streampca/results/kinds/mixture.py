"""Mixture of probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import Kind

KIND = Kind(
    name="mixture",
    title="Mixture of probabilistic PCA",
    record="streampca.models.mixture.options:MixtureOptions",
    example="streampca mixture points.zarr --n-clusters 3 -k 2",
    genotypes=False,
    opening="A mixture of probabilistic principal component analysers (Tipping & Bishop 1999b) of {} was fitted",
    methods="streampca.results.methods:likelihood",
)

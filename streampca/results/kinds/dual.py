"""Dual probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import Kind

KIND = Kind(
    name="dual",
    title="Dual probabilistic PCA",
    record="streampca.models.dual.options:DualPPCAOptions",
    example="streampca dual points.zarr -k 2",
    methods="streampca.results.methods:dual",
    error_tol=True,
)

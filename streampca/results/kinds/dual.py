"""Dual probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import Kind

KIND = Kind(
    name="dual",
    title="Dual probabilistic PCA",
    record="streampca.models.dual.options:DualPPCAOptions",
    example="streampca dual points.zarr -k 2",
    opening="Dual probabilistic principal component analysis (Lawrence 2005) of {} was carried out",
    methods="streampca.results.methods:dual",
    error_tol=True,
)

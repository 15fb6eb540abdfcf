"""Dual probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.dual.options import DualPPCAOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="dual",
    title="Dual probabilistic PCA",
    options=DualPPCAOptions,
    example="streampca dual points.zarr -k 2",
)

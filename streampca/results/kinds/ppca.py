"""Probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.ppca.options import PPCAOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="ppca",
    title="Probabilistic PCA",
    options=PPCAOptions,
    example="streampca ppca table.zarr -k auto --out table.ppca.zarr",
)

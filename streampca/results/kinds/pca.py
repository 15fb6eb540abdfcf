"""Principal component analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.pca.options import PCAOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="pca",
    title="Principal component analysis",
    options=PCAOptions,
    example="streampca pca study.bed -k 20 --memory 2GB --out study.pca.zarr",
)

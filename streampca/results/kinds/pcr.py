"""Principal component regression as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.pcr.options import PCROptions
from streampca.results.kind import Kind

KIND = Kind(
    name="pcr",
    title="Principal component regression",
    options=PCROptions,
    example="streampca pcr study.bed --target traits.tsv:height --covariates traits.tsv:age,sex",
)

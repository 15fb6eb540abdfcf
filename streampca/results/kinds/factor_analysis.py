"""Factor analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.ppca.options import FactorAnalysisOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="factor_analysis",
    title="Factor analysis",
    options=FactorAnalysisOptions,
    example="streampca factor_analysis table.zarr -k 5",
)

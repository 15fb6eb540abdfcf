"""Factor analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.ppca.options import FactorAnalysisOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="factor_analysis",
    title="Factor analysis",
    options=FactorAnalysisOptions,
    example="streampca factor_analysis table.zarr -k 5",
    fit="streampca.results.fit:fit_latent",
    plan="streampca.results.fit:plan_latent",
    summary="streampca.results.summary:latent",
    exports=("tsv",),
    project="streampca.results.apply:project_latent",
    impute="streampca.results.apply:impute_latent",
)

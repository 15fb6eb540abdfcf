"""Probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.ppca.options import PPCAOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="ppca",
    title="Probabilistic PCA",
    options=PPCAOptions,
    example="streampca ppca table.zarr -k auto --out table.ppca.zarr",
    fit="streampca.results.fit:fit_latent",
    plan="streampca.results.fit:plan_latent",
    summary="streampca.results.summary:latent",
    exports=("plink", "tsv"),
    project="streampca.results.apply:project_latent",
    impute="streampca.results.apply:impute_latent",
)

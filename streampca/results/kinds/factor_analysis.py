"""Factor analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, Kind

KIND = Kind(
    name="factor_analysis",
    title="Factor analysis",
    record="streampca.models.ppca.options:FactorAnalysisOptions",
    example="streampca factor_analysis table.zarr -k 5",
    estimator="streampca.models.ppca.estimator:FactorAnalysis",
    dataset="streampca.models.ppca.dataset",
    dimensions={"noise_variance": ("F",), "scaling_mean": ("F",), "shift": ("F",)},
    arrays=(*LINEAR_ARRAYS, "log_likelihood", "noise_variance"),
    attributes=(
        "method",
        "n_iterations",
        "change",
        "total_log_likelihood",
        "genotypes",
        "n_features",
        "n_missing",
        "notes",
    ),
    fit="streampca.results.fit.latent:fit",
    plan="streampca.results.fit.latent:plan",
    summary="streampca.results.summary:latent",
    exports=("tsv",),
    project="streampca.results.apply:project_latent",
    impute="streampca.results.apply:impute_latent",
    opening="Maximum-likelihood factor analysis (Rubin & Thayer 1982) of {} was carried out",
    methods="streampca.results.methods:likelihood",
    missing_values="were excluded from the likelihood",
    component="factor",
    prefix="Factor ",
)

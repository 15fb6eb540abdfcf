"""Factor analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import EM_ATTRIBUTES, LINEAR_ARRAYS, Kind

KIND = Kind(
    name="factor_analysis",
    title="Factor analysis",
    example="streampca factor_analysis table.zarr -k 5",
    opening="Maximum-likelihood factor analysis (Rubin & Thayer 1982) of {} was carried out",
    record="streampca.models.ppca.options:FactorAnalysisOptions",
    estimator="streampca.models.ppca.estimator:FactorAnalysis",
    fitted="streampca.models.ppca.record:FactorAnalysisFit",
    fit="streampca.models.ppca.fit:fit_ppca",
    plan="streampca.models.ppca.fit:plan_ppca",
    scores="streampca.models.ppca.fit:with_posterior",
    sample_arrays=("scores", "score_deviation"),
    project="streampca.results.apply:project_latent",
    impute="streampca.results.apply:impute_latent",
    exports=("tsv",),
    outliers=True,
    arrays=(*LINEAR_ARRAYS, "log_likelihood", "noise_variance"),
    attributes=(*EM_ATTRIBUTES, "method", "change", "n_missing"),
    missing_values="were excluded from the likelihood",
    component="factor",
    prefix="Factor ",
)

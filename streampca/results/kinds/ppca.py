"""Probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import EM_ATTRIBUTES, LINEAR_ARRAYS, Kind

KIND = Kind(
    name="ppca",
    title="Probabilistic PCA",
    example="streampca ppca table.zarr -k auto --out table.ppca.zarr",
    opening="Probabilistic principal component analysis (Tipping & Bishop 1999) of {} was carried out",
    record="streampca.models.ppca.options:PPCAOptions",
    estimator="streampca.models.ppca.estimator:PPCA",
    fitted="streampca.models.ppca.record:PPCAFit",
    fit="streampca.models.ppca.fit:fit_ppca",
    plan="streampca.models.ppca.fit:plan_ppca",
    scores="streampca.models.ppca.fit:with_posterior",
    sample_arrays=("scores", "score_deviation"),
    project="streampca.results.apply:project_latent",
    impute="streampca.results.apply:impute_latent",
    exports=("plink", "smartpca", "tsv"),
    outliers=True,
    certified=True,
    arrays=(*LINEAR_ARRAYS, "log_likelihood"),
    attributes=(*EM_ATTRIBUTES, "method", "change", "n_missing", "noise_variance"),
    missing_values="were excluded from the likelihood",
)

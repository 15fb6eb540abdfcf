"""Probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, Kind

KIND = Kind(
    name="ppca",
    title="Probabilistic PCA",
    record="streampca.models.ppca.options:PPCAOptions",
    example="streampca ppca table.zarr -k auto --out table.ppca.zarr",
    estimator="streampca.models.ppca.estimator:PPCA",
    dataset="streampca.models.ppca.dataset",
    dimensions={"loadings": ("component", "F"), "scaling_mean": ("F",), "shift": ("F",)},
    arrays=(*LINEAR_ARRAYS, "log_likelihood"),
    attributes=(
        "method",
        "n_iterations",
        "change",
        "total_log_likelihood",
        "noise_variance",
        "genotypes",
        "n_features",
        "n_missing",
        "notes",
    ),
    certified=True,
    fit="streampca.results.fit.latent:fit",
    plan="streampca.results.fit.latent:plan",
    summary="streampca.results.summary:latent",
    exports=("plink", "tsv"),
    project="streampca.results.apply:project_latent",
    impute="streampca.results.apply:impute_latent",
    opening="Probabilistic principal component analysis (Tipping & Bishop 1999) of {} was carried out",
    methods="streampca.results.methods:likelihood",
    missing_values="were excluded from the likelihood",
)

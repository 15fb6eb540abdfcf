"""Principal component analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, Kind

KIND = Kind(
    name="pca",
    title="Principal component analysis",
    record="streampca.models.pca.options:PCAOptions",
    example="streampca pca study.bed -k 20 --memory 2GB --out study.pca.zarr",
    estimator="streampca.models.pca.estimator:PCA",
    dataset="streampca.models.pca.dataset",
    arrays=(*LINEAR_ARRAYS, "certificate|estimate"),
    attributes=("solver",),
    certified=True,
    fit="streampca.results.fit.linear:fit",
    plan="streampca.results.fit.linear:plan",
    summary="streampca.results.summary:linear",
    exports=("plink", "tsv"),
    project="streampca.results.apply:project_linear",
    denoise="streampca.results.apply:denoise_linear",
    opening="Principal components of {} were computed",
    methods="streampca.results.methods:eigen_solver",
    error_tol=True,
)

"""Principal component analysis as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, Kind

KIND = Kind(
    name="pca",
    title="Principal component analysis",
    example="streampca pca study.bed -k 20 --memory 2GB --out study.pca.zarr",
    opening="Principal components of {} were computed",
    record="streampca.models.pca.options:PCAOptions",
    estimator="streampca.models.pca.estimator:PCA",
    fitted="streampca.models.pca.record:PCAFit",
    fit="streampca.models.pca.fit:fit_for_scores",
    plan="streampca.models.pca.fit:plan_pca",
    scores="streampca.models.pca.fit:with_scores",
    project="streampca.results.apply:project_linear",
    denoise="streampca.results.apply:denoise_linear",
    exports=("plink", "smartpca", "tsv"),
    outliers=True,
    relatives=True,
    certified=True,
    arrays=(*LINEAR_ARRAYS, "certificate|estimate"),
    attributes=("solver",),
)

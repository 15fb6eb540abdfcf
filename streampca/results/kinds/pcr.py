"""Principal component regression as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, SHARED_ATTRIBUTES, Kind

KIND = Kind(
    name="pcr",
    title="Principal component regression",
    record="streampca.models.pcr.options:PCRTableOptions",
    example="streampca pcr study.bed --target traits.tsv:height --covariates traits.tsv:age,sex",
    estimator="streampca.models.pcr.estimator:PCR",
    dataset="streampca.models.pcr.dataset",
    arrays=(*LINEAR_ARRAYS, "certificate", "coefficient", "centre", "score_coefficient", "chosen", "r2", "fold"),
    attributes=(*SHARED_ATTRIBUTES, "solver", "n_folds", "covariate_kinds"),
    certified=True,
    fit="streampca.results.fit.regression:fit",
    plan="streampca.results.fit.regression:plan",
    summary="streampca.results.summary:regression",
    project="streampca.results.apply:project_linear",
    predict="streampca.results.fit.regression:predict",
    opening="Principal component regression on {} was carried out",
    methods="streampca.results.methods:regression",
    error_tol=True,
)

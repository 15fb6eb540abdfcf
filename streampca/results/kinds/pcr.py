"""Principal component regression as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, SHARED_ATTRIBUTES, Kind

KIND = Kind(
    name="pcr",
    title="Principal component regression",
    example="streampca pcr study.bed --target traits.tsv:height --covariates traits.tsv:age,sex",
    opening="Principal component regression on {} was carried out",
    record="streampca.models.pcr.options:PCRTableOptions",
    estimator="streampca.models.pcr.estimator:PCR",
    fitted="streampca.models.pcr.record:PCRFit",
    fit="streampca.results.regression:fit_tables",
    plan="streampca.results.regression:plan_tables",
    project="streampca.results.apply:project_linear",
    predict="streampca.results.regression:predict",
    certified=True,
    arrays=(*LINEAR_ARRAYS, "certificate", "coefficient", "centre", "score_coefficient", "chosen", "r2", "fold"),
    attributes=(*SHARED_ATTRIBUTES, "solver", "n_folds", "covariate_kinds"),
)

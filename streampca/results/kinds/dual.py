"""Dual probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, SHARED_ATTRIBUTES, Kind

KIND = Kind(
    name="dual",
    title="Dual probabilistic PCA",
    example="streampca dual points.zarr -k 2",
    opening="Dual probabilistic principal component analysis (Lawrence 2005) of {} was carried out",
    record="streampca.models.dual.options:DualPPCAOptions",
    estimator="streampca.models.dual.estimator:DualPPCA",
    fitted="streampca.models.dual.fit:DualPPCAFit",
    fit="streampca.models.dual.fit:fit_dual",
    plan="streampca.models.dual.fit:plan_dual",
    exports=("tsv",),
    certified=True,
    arrays=(*LINEAR_ARRAYS, "certificate|estimate", "scores", "dual_eigenvalue"),
    attributes=(*SHARED_ATTRIBUTES, "solver", "noise_variance", "total_log_likelihood"),
)

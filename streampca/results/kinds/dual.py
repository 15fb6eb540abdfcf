"""Dual probabilistic PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, SHARED_ATTRIBUTES, Kind

KIND = Kind(
    name="dual",
    title="Dual probabilistic PCA",
    record="streampca.models.dual.options:DualPPCAOptions",
    example="streampca dual points.zarr -k 2",
    opening="Dual probabilistic principal component analysis (Lawrence 2005) of {} was carried out",
    estimator="streampca.models.dual.estimator:DualPPCA",
    dataset="streampca.models.dual.dataset",
    arrays=(*LINEAR_ARRAYS, "certificate|estimate", "scores", "dual_eigenvalue"),
    attributes=(*SHARED_ATTRIBUTES, "solver", "noise_variance", "total_log_likelihood"),
    dimensions={"dual_eigenvalue": ("component",)},
    certified=True,
    exports=("tsv",),
    fit="streampca.results.fit.dual:fit",
    plan="streampca.results.fit.dual:plan",
    summary="streampca.results.summary:dual",
    methods="streampca.results.methods:dual",
    error_tol=True,
)

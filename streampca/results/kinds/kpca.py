"""Kernel PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, SHARED_ATTRIBUTES, Kind

KIND = Kind(
    name="kpca",
    title="Kernel PCA",
    example="streampca kpca points.zarr -k 20 --kernel rbf --gamma median --n-landmarks 1000",
    opening="Kernel principal component analysis (Schölkopf et al. 1998) of {} was carried out",
    record="streampca.models.kernel_pca.options:KernelPCAOptions",
    estimator="streampca.models.kernel_pca.estimator:KernelPCA",
    fitted="streampca.models.kernel_pca.record:KernelPCAFit",
    fit="streampca.models.kernel_pca.fit:fit_kernel_pca",
    plan="streampca.models.kernel_pca.fit:plan_kernel_pca",
    scores="streampca.models.kernel_pca.record:with_kernel_scores",
    project="streampca.results.apply:project_kernel",
    denoise="streampca.results.apply:denoise_kernel",
    genotypes=False,
    arrays=(
        "weights", "kernel_mean", *LINEAR_ARRAYS[1:], "certificate", "estimated_error", "landmarks|frequencies",
        "mean_weights|frequencies",
    ),
    attributes=(
        *SHARED_ATTRIBUTES, "kernel", "kernel_is_function", "gamma", "degree", "coef0", "method", "rank", "n_landmarks",
    ),
    variance="or more of the variance in feature space",
    centres=False,
)  # fmt: skip

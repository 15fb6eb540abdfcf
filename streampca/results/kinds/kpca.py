"""Kernel PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.results.kind import LINEAR_ARRAYS, Kind

KIND = Kind(
    name="kpca",
    title="Kernel PCA",
    record="streampca.models.kernel_pca.options:KernelPCAOptions",
    example="streampca kpca points.zarr -k 20 --kernel rbf --gamma median --n-landmarks 1000",
    estimator="streampca.models.kernel_pca.estimator:KernelPCA",
    dataset="streampca.models.kernel_pca.dataset",
    dimensions={"scaled_landmarks": ("landmark", "F")},
    arrays=(
        "weights",
        "kernel_mean",
        *LINEAR_ARRAYS[1:],
        "certificate",
        "estimated_error",
        "landmarks|frequencies",
        "mean_weights|frequencies",
    ),
    attributes=(
        "kernel",
        "kernel_is_function",
        "gamma",
        "degree",
        "coef0",
        "method",
        "rank",
        "n_landmarks",
        "genotypes",
        "n_features",
        "notes",
    ),
    fit="streampca.results.fit.kernel:fit",
    plan="streampca.results.fit.kernel:plan",
    summary="streampca.results.summary:kernel",
    genotypes=False,
    project="streampca.results.apply:project_kernel",
    denoise="streampca.results.apply:denoise_kernel",
    opening="Kernel principal component analysis (Schölkopf et al. 1998) of {} was carried out",
    methods="streampca.results.methods:kernel",
    variance="or more of the variance in feature space",
    centres=False,
)

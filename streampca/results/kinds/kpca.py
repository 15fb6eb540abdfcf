"""Kernel PCA as a kind: command, configuration, store, report."""

from __future__ import annotations

from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.results.kind import Kind

KIND = Kind(
    name="kpca",
    title="Kernel PCA",
    options=KernelPCAOptions,
    example="streampca kpca points.zarr -k 20 --kernel rbf --gamma median --n-landmarks 1000",
    fit="streampca.results.fit:fit_kernel",
    plan="streampca.results.fit:plan_kernel",
    summary="streampca.results.summary:kernel",
    genotypes=False,
    project="streampca.results.apply:project_kernel",
    denoise="streampca.results.apply:denoise_kernel",
)

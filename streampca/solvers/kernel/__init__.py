"""Kernel PCA in the span of landmarks: kernels, the choice of landmarks, and the solver."""

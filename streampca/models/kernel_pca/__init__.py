"""Kernel PCA by landmarks: options, fit, estimator."""

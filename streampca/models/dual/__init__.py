"""Dual probabilistic PCA: options, fit, estimator."""

"""Mixtures of probabilistic PCA: options, fit, estimator."""

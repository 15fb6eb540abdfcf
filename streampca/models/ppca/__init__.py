"""Probabilistic PCA and factor analysis: options, fit, estimator."""

"""Mixtures of probabilistic PCA by EM."""

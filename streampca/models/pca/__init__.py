"""Principal component analysis: options, fit, estimator."""

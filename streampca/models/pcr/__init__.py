"""Principal component regression: options, fit, estimator."""

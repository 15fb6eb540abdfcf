"""Fit a model and write it to a store: one module per family of models, with `fit` and `plan`."""

"""Models: plain functions, and estimators with scikit-learn's names over them."""

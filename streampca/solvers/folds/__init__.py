"""Components of all training sets of a cross-validation from the same sweeps."""

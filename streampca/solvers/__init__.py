"""Solvers: one algorithm a file, each a frozen record of its parameters that loops over sweeps."""

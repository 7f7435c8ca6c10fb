"""Solvers of the regression on kernel columns (Machart et al. 2011)."""

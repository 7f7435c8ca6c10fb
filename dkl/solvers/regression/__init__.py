"""Solvers of the regression on kernel columns (SLKL, Machart et al. 2011)."""

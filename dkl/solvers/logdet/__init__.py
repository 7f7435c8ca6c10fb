"""Solvers of the LogDet problem (TRIN, Li et al. 2009)."""

"""Solvers of the LogDet problem (Li et al. 2009)."""

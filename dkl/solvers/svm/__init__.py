"""Solvers of the optimal neighborhood kernel's SVM (ONK, Liu et al. 2009)."""

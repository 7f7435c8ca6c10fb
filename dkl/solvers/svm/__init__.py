"""Solvers of the optimal neighborhood kernel's SVM (Liu et al. 2009)."""

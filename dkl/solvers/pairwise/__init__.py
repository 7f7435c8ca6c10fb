"""Solvers of the pairwise problem (KL-ADMM, Hu & Kwok 2013)."""

"""Solvers of the pairwise problem (Hu & Kwok 2013)."""

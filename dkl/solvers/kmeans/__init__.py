"""Solvers of the k-means problem."""

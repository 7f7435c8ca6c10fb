"""Runs of `OptimalNeighborhoodSVC`."""

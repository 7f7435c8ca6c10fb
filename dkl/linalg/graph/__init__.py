"""Neighbors, similarity graphs and their Laplacians, in memory."""

"""Runs of the learners in a graph's basis (SQLP)."""

"""Recomputation of stored results for `dkl verify`, shared by several learners; imports no solver."""

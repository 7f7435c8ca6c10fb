"""Runs of learners from targets or classes of rows, by kernels on the rows."""

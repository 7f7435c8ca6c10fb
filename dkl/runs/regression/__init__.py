"""Runs of `LowRankKernelRegressor`."""

"""Runs of `PairwiseKernelLearner`."""

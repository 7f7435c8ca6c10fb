"""Kernels and Mahalanobis metrics near a given one in LogDet divergence (Li et al. 2009)."""

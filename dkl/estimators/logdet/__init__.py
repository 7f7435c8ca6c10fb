"""Kernels and Mahalanobis metrics near a given one in LogDet divergence (TRIN, Li et al. 2009)."""

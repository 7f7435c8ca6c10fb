"""Kernels and Mahalanobis metrics near a given one in LogDet divergence, from triplets, pairs or labels (Li et al. 2009)."""

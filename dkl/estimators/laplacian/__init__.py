"""Kernels in the basis of a neighbour graph's smoothest eigenvectors (SQLP; Wu, So, Li & Li 2009)."""

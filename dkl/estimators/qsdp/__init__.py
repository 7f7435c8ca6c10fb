"""Learners of kernels in a graph's basis, by a quadratic over the psd cone (SQLP, Wu, So, Li & Li 2009)."""

"""Learners of kernels in a graph's basis, by a quadratic over the psd cone (Wu, So, Li & Li 2009)."""

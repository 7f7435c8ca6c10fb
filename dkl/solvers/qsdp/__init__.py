"""Solvers of the quadratic over the psd cone (Wu, So, Li & Li 2009)."""

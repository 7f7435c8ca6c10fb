"""Solvers of the quadratic over the psd cone (SQLP, Wu, So, Li & Li 2009)."""

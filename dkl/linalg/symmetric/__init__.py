"""Symmetric matrices: factorizations, linear maps of them, quadratics over the psd cone."""

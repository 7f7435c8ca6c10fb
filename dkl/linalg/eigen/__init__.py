"""Eigenvalues and eigenvectors of sparse symmetric matrices, and bounds on them."""

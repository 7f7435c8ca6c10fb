"""Kernel matrices by their products, held, recomputed or on disk."""

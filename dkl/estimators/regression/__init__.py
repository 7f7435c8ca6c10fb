"""Kernel regression on learned columns (SLKL)."""

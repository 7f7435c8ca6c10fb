"""Kernel regression on learned columns (SLKL, Machart et al. 2011)."""

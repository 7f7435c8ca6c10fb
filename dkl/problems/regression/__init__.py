"""The regression on kernel columns (SLKL, Machart et al. 2011): what is minimized, and its certificate."""

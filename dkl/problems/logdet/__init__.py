"""The LogDet problem (TRIN, Li et al. 2009): what is minimized, and its certificate."""

"""The LogDet problem (Li et al. 2009): what is minimized, and its certificate."""

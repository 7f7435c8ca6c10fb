"""The pairwise problem (KL-ADMM, Hu & Kwok 2013): what is minimized, and its certificate."""

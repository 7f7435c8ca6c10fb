"""The pairwise problem (Hu & Kwok 2013): what is minimized, and its certificate."""

"""A kernel from pairs, in the basis of a neighbor graph's smoothest eigenvectors (RegPCP; Wu, So, Li & Li 2009)."""

"""A kernel from pairs, in the basis of a neighbour graph's smoothest eigenvectors (RegPCP; Wu, So, Li & Li 2009)."""

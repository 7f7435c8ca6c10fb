"""The neighbor graph of rows that need not fit in memory, and its smoothest eigenvectors."""

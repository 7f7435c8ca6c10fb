"""Rows by the smoothest functions on their neighbour graph: `SpectralEmbedding` and `SpectralClustering`."""

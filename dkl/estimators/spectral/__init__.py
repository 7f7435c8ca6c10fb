"""Rows by the smoothest functions on their neighbor graph: `SpectralEmbedding` and `SpectralClustering`."""

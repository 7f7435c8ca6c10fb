"""Embedding and clustering of rows by the smoothest functions on their neighbor graph."""

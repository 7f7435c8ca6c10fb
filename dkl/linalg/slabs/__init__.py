"""Compiled operations on rank slabs of a factor."""

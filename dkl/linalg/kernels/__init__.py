"""Kernel matrices and their columns, in memory."""

"""Sums over rows, and rows that several owners share."""

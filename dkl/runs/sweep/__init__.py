"""Fits over a grid of sizes and settings, each in its own process: their cost and its growth with n."""

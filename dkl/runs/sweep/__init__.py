"""Fits over a grid of sizes and settings, each in a process of its own: what they cost, and how that grows with n."""

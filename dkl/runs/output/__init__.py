"""Predictions and coordinates that runs write, and the memory that these take."""

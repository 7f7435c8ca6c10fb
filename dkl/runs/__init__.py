"""Runs: fits in a folder, which commands and programs start, resume, verify and use."""

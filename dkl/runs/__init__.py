"""Runs: fits in a folder, as a command or a program begins, resumes, checks and uses them. Every verb is written once."""

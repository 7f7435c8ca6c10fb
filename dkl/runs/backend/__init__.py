"""Threads, own worker processes or a running cluster, as a command asks for them."""

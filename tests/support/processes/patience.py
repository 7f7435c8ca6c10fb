"""How long tests wait for another process: long enough for a loaded machine, which is slow and not wrong."""

PATIENCE = 240.0
"""Seconds after which a process that should have moved on, or ended, is taken to hang."""

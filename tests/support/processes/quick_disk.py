"""Writes that no test waits for: no power is cut here, and a fit by command waits for its disk longer than it computes."""

import os

WAITS = os.fsync
"""The real one, of which `tests/stores/test_commits.py` and the processes that are not forked make use."""


def fsync(descriptor: int) -> None:
    """Check that it is a file that is open, as the real one does."""
    os.fstat(descriptor)


def install() -> None:
    """In this process, and in those that are forked from it."""
    os.fsync = fsync

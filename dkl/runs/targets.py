"""The declaration of targets, which supervised learners share. Imports nothing large."""

from __future__ import annotations

from dkl.runs.kind import InputFile


def targets_file(help: str) -> InputFile:
    """Of targets or labels, which may stand beside the rows, as `y` of the same file."""
    return InputFile("targets", "targets", f"{help} [y beside the rows]", required=False, beside="data")

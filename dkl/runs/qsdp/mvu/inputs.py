"""Rows, and the labels that an unfolding may be colored by, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.estimators.qsdp.mvu.settings import UnfoldingSettings
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.row_files import require_room_for_targets
from dkl.runs.qsdp.basis_inputs import BasisInputs, read_rows
from dkl.runs.supervised.class_inputs import in_file, read_class_labels
from dkl.runs.supervised.inputs import file_of_targets, may_have_targets, note_targets, target_numbers


@dataclass(frozen=True)
class UnfoldingInputs(BasisInputs):
    """Rows, with a factor `side` (n, k) of the kernel of labels if these are learned from; and files."""

    side: NDArray[np.float64] | None


def read(files: Files, settings: UnfoldingSettings, *, values: bool) -> UnfoldingInputs:
    """Read rows and labels, or the rows' shape without `values`; InputError for what does not match."""
    rows = read_rows(files, settings, values=values, least=3)
    if not settings.colored:
        if files.paths["targets"] is not None:
            require_room_for_targets(file_of_targets(files), settings.memory_limit)
            labels(files, rows.n)
            note_targets(files, rows)
        return UnfoldingInputs(files, rows, None)
    require_room_for_targets(file_of_targets(files), settings.memory_limit)
    from dkl.estimators.qsdp.mvu.fit import label_factor

    try:
        found = UnfoldingInputs(files, rows, label_factor(_side(files, rows.n), rows.n))
    except InputError as error:
        raise in_file(error, files, rows.n) from error
    note_targets(files, rows)
    return found


def labels(files: Files, n: int) -> Any:
    """Return labels (n,) that color a picture; None without, or for rows of numbers. Raises InputError."""
    if not may_have_targets(files):
        return None
    found = _side(files, n)
    return found if found.ndim == 1 else None


def _side(files: Files, n: int) -> NDArray:
    """Return labels (n,), or numbers (n, k), from the file of targets."""
    try:
        return read_class_labels(files, n)
    except InputError:
        found = _numbers(files)
        if found is None or found.ndim != 2 or len(found) != n or found.shape[1] < 2:
            raise
        return found


def _numbers(files: Files) -> NDArray | None:
    """Return the array of numbers in the file of targets; None for anything else."""
    try:
        found = target_numbers(files)
    except InputError:
        return None
    return found if isinstance(found, np.ndarray) else None

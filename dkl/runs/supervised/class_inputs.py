"""Inputs of classifiers: rows with class labels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.datasets import read_labels
from dkl.errors import InputError
from dkl.estimators.base.classes import checked_labels
from dkl.io.label_files import label_line
from dkl.io.table_lines import table_suffix
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.row_files import require_room_for_targets
from dkl.runs.supervised.inputs import (
    SupervisedInputs,
    file_of_targets,
    note_targets,
    read_rows,
    stored_targets,
    target_table,
    where_targets,
)

_ROW = re.compile(r"y\[([0-9]+)\]")


@dataclass(frozen=True)
class ClassInputs(SupervisedInputs):
    """Rows and their class labels, targets (n,); the classes (k,) in order, and each row's number of one (n,)."""

    classes: NDArray
    numbers: NDArray[np.intp]

    @classmethod
    def read(cls, files: Files, memory_limit: int | None, *, values: bool, is_kernel: bool) -> ClassInputs:
        """Read rows and labels from files; without `values` only the shape of the rows.
        is_kernel: the rows must be (n, n). Raises InputError for invalid labels and for fewer than two classes."""
        rows = read_rows(files, memory_limit, values=values, is_kernel=is_kernel)
        require_room_for_targets(file_of_targets(files), memory_limit)
        labels = read_class_labels(files, rows.n)
        try:
            classes, numbers = checked_labels(labels, rows.n)
        except InputError as error:
            raise in_file(error, files, rows.n) from error
        note_targets(files, rows)
        return cls(files, rows, labels, classes, numbers)

    def masks(self) -> list[NDArray[np.bool_]]:
        """Return for each class a mask (n,) of the rows with its label."""
        return [self.targets == name for name in self.classes]

    def sides(self, multi_class: str) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return masks (n,) of positive and negative rows for each two-class problem, from the labels alone.

        Two classes: the second is positive. "ovr": each class against the rest; "ovo": each against each that comes later.
        """
        masks = self.masks()
        if len(masks) == 2:
            return [(masks[1], masks[0])]
        if multi_class == "ovr":
            return [(mask, ~mask) for mask in masks]
        return [(first, other) for k, first in enumerate(masks) for other in masks[k + 1 :]]

    def weights(self, class_weight: Any) -> NDArray[np.float64]:
        """Return weights (n,) of the rows: 1, or n / (k n_c) for a class of n_c rows if "balanced"."""
        weights = np.ones(self.rows.n)
        if class_weight == "balanced":
            for mask in self.masks():
                weights[mask] = self.rows.n / (len(self.classes) * np.count_nonzero(mask))
        return weights


def read_class_labels(files: Files, n: int) -> NDArray:
    """Return labels (n,), of which some may be missing: from their own file or zarr array, or those next to the rows."""
    file, stored = file_of_targets(files), stored_targets(files)
    if stored is None:
        return read_labels(file, n, target_table(files))
    if stored.shape not in ((n,), (n, 1)):
        got = f"shape {stored.shape}"
        raise InputError("not labels of these rows", where=str(file), got=got, wanted=f"({n},)")
    return stored.reshape(n)


def in_file(error: InputError, files: Files, n: int) -> InputError:
    """Return an error about y as one about the file of n labels, by its line in text; others unchanged."""
    if not error.where or not error.where.startswith("y"):
        return error
    row, file, table = _ROW.fullmatch(error.where), file_of_targets(files), target_table(files)
    if row and table_suffix(file) is not None:
        column = "" if table.target_column is None else f", column {table.target_column!r}"
        where = f"{file}, line {label_line(file, n, int(row[1]), table)}{column}"
    else:
        where = " ".join([where_targets(files), error.where.removeprefix("y")]).rstrip()
    return InputError(error.what, where=where, got=error.got, wanted=error.wanted, remedy=error.remedy)


def read(files: Files, settings: Any, *, values: bool) -> ClassInputs:
    """Read the inputs of a learner with a setting `kernel`; see `ClassInputs.read`."""
    is_kernel = settings.kernel == "precomputed"
    return ClassInputs.read(files, settings.memory_limit, values=values, is_kernel=is_kernel)

"""Rows and class labels, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.datasets import read_labels
from dkl.errors import InputError
from dkl.estimators.common.classes import checked_labels
from dkl.estimators.svc.kernels import kernels_of
from dkl.estimators.svc.settings import SVCSettings
from dkl.runs.files import Files, check_values
from dkl.runs.supervised import check_kernel, file_of_targets, read_rows, where_targets
from dkl.solvers.svm_pairs import TwoClasses, machines


@dataclass(frozen=True)
class SVCInputs:
    """Rows and labels (n,) that fit together, the classes and each row's number of one, and the files they came from."""

    files: Files
    rows: RowSource
    labels: NDArray
    classes: NDArray
    numbers: NDArray[np.intp]

    def machines(self, settings: SVCSettings) -> list[TwoClasses]:
        """The two-class problems."""
        return machines(self.numbers, len(self.classes), settings.multi_class)

    def fingerprints(self) -> dict[str, Any]:
        """What the run keeps of its files."""
        return self.files.fingerprints(data=(self.rows.n, self.rows.n_features), targets=self.labels.shape)


def read(files: Files, settings: SVCSettings, *, values: bool) -> SVCInputs:
    """Rows with their labels; without `values` the rows' shape is enough."""
    rows = read_rows(files, values=values, square=settings.kernel == "precomputed")
    labels = read_class_labels(files, rows.n)
    try:
        classes, numbers = checked_labels(labels, rows.n)
    except InputError as error:
        raise InputError(error.what, where=where_targets(files), got=error.got, wanted=error.wanted) from error
    return SVCInputs(files, rows, labels, classes, numbers)


def check(inputs: SVCInputs, settings: SVCSettings) -> None:
    """InputError for a value that is not finite, or a kernel that is none on these rows."""
    check_values(inputs.rows)
    for kernel in kernels_of(settings, inputs.rows):
        check_kernel(inputs.rows, kernel)


def read_class_labels(files: Files, n: int) -> NDArray:
    """(n,) labels: from their own file, or those that stand beside the rows."""
    found = read_labels(file_of_targets(files), n)
    bad = np.flatnonzero(~np.isfinite(found)) if found.dtype.kind == "f" else np.empty(0, int)
    if bad.size:
        raise InputError("not finite", where=f"{where_targets(files)} [{bad[0]}]", got=found[bad[0]])
    return found

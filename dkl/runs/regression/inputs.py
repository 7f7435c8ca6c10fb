"""Rows and targets of a kernel regression, checked as far as can be before anything is written."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.regression.columns.targets import LEAST, are_too_small
from dkl.estimators.regression.settings import RegressionSettings
from dkl.io.table_lines import table_suffix
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.row_files import require_room_for_targets
from dkl.runs.supervised.inputs import (
    SupervisedInputs,
    file_of_targets,
    note_targets,
    read_rows,
    target_numbers,
    where_targets,
)


class RegressionInputs(SupervisedInputs):
    """Rows with targets that are finite numbers."""

    def centered(
        self, settings: RegressionSettings, known: list[float] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (targets (n, T) less their means, those means (T,)); without an intercept the means are 0.

        known: the means that the run was started with, which its sums are of; None for runs that kept none, the plain ones.
        Raises StoreError for means that are not a finite number of each target.
        """
        y = self.targets.reshape(self.rows.n, -1)
        means = np.average(y, axis=0) if known is None else _means(known, y.shape[1])
        offsets = means if settings.fit_intercept else np.zeros(y.shape[1])
        return y - offsets, offsets


def _means(known: Any, n_targets: int) -> NDArray[np.float64]:
    """Return the means that a configuration stores as an array (T,); StoreError if damaged."""
    is_list = isinstance(known, list) and len(known) == n_targets
    if not is_list or not all(type(mean) is float and np.isfinite(mean) for mean in known):
        wanted = f"{n_targets} finite numbers"
        raise StoreError("damaged means of the targets", where="config.json", got=str(known)[:200], wanted=wanted)
    return np.array(known)


def read(files: Files, settings: RegressionSettings, *, values: bool) -> RegressionInputs:
    """Read rows and targets, or the rows' shape without `values`."""
    rows = read_rows(files, settings.memory_limit, values=values, is_kernel=settings.kernel == "precomputed")
    if settings.nu == "cv" and rows.n < 2:
        remedy = "give --nu as a number"
        raise InputError("cross-validation needs 2 rows", where=str(files["data"]), got=f"{rows.n}", remedy=remedy)
    require_room_for_targets(file_of_targets(files), settings.memory_limit)
    targets = read_targets(files, rows.n)
    note_targets(files, rows)
    return RegressionInputs(files, rows, targets)


def read_targets(files: Files, n: int) -> NDArray[np.float64]:
    """Return finite targets (n,) or (n, T), from their own file or the rows'. One column is (n,)."""
    file, where = file_of_targets(files), where_targets(files)
    found = target_numbers(files)
    if not isinstance(found, np.ndarray) or found.ndim not in (1, 2) or len(found) != n or 0 in found.shape:
        shape = getattr(found, "shape", None)
        one_more = table_suffix(file) is not None and shape is not None and shape[0] == n + 1
        remedy = "a first line of numbers is read as a row; if it holds names: --header" if one_more else None
        wanted = f"({n},) or ({n}, T)"
        raise InputError("not targets of these rows", where=where, got=f"shape {shape}", wanted=wanted, remedy=remedy)
    y = np.array(found, dtype=np.float64)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    bad = np.argwhere(~(np.abs(y) <= np.sqrt(np.finfo(float).max / n) / 4))  # their squares are added up
    if len(bad):
        place = ", ".join(map(str, bad[0]))
        raise InputError("not finite, or too large to square", where=f"{where} [{place}]", got=y[tuple(bad[0])])
    if are_too_small(y):
        raise InputError("too small to square", where=where, wanted=f"|y| >= {LEAST:.2g}", remedy="scale them")
    return y

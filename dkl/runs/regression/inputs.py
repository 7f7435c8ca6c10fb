"""Rows, targets and settings of a kernel regression, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.datasets import read_array
from dkl.errors import InputError
from dkl.estimators.columns.settings import RegressionSettings
from dkl.estimators.common.parameters import KERNEL_PARAMETERS, REGRESSION_PARAMETERS
from dkl.runs.files import check_each, check_values, load_rows, peek_rows
from dkl.runs.stored import check_changes, open_task, stored_settings
from dkl.runs.supervised import Files, check_kernel, check_square
from dkl.stores.run import RunStore

PARAMETERS = {**KERNEL_PARAMETERS, **REGRESSION_PARAMETERS}
MAY_CHANGE = ("max_iter", "memory_limit", "checkpoint_every")
"""When a run is gone on with."""


@dataclass(frozen=True)
class RegressionInputs:
    """Rows and targets (n,) or (n, T) that fit together, and where they came from."""

    files: Files
    rows: RowSource
    targets: NDArray[np.float64]

    def centred(self, settings: RegressionSettings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(targets (n, T) less their means, those means), as a fit with an intercept wants them."""
        y = self.targets.reshape(self.rows.n, -1)
        offsets = np.average(y, axis=0) if settings.fit_intercept else np.zeros(y.shape[1])
        return y - offsets, offsets

    def fingerprints(self) -> dict[str, Any]:
        return self.files.fingerprints(self.rows, self.targets)


def read_inputs(
    data: str | Path, targets: str | Path | None, settings: RegressionSettings, *, values: bool
) -> RegressionInputs:
    """Both files, checked; with `values` all rows are read and must be finite, else their shape alone is."""
    files = Files.of(data, targets)
    inputs = _together(files, load_rows(files.data) if values else peek_rows(files.data), settings)
    if values:
        check_values(inputs.rows)
        check_kernel(inputs.rows, settings.kernel_function)
    return inputs


def _together(files: Files, rows: RowSource, settings: RegressionSettings) -> RegressionInputs:
    """Rows with their targets, of shapes that a fit can take."""
    if settings.kernel == "precomputed":
        check_square(rows, files.data)
    if settings.nu == "cv" and rows.n < 2:
        mend = "give --nu as a number"
        raise InputError("cross-validation needs 2 rows", where=str(files.data), got=f"{rows.n}", mend=mend)
    return RegressionInputs(files, rows, read_targets(files, rows.n))


def read_targets(files: Files, n: int) -> NDArray[np.float64]:
    """(n,) or (n, T) finite numbers: from their own file, or those that stand beside the rows. One column is (n,)."""
    file = files.of_targets
    where = str(file) if files.targets is not None else f"y of {file}"
    found = read_array(file, "y") if files.targets is None else _own_file(file)
    if not isinstance(found, np.ndarray) or found.ndim not in (1, 2) or len(found) != n or 0 in found.shape:
        got = f"shape {getattr(found, 'shape', None)}"
        raise InputError("not targets of these rows", where=where, got=got, wanted=f"({n},) or ({n}, T)")
    y = np.array(found, dtype=np.float64)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    bad = np.argwhere(~(np.abs(y) <= np.sqrt(np.finfo(float).max / n) / 4))  # their squares are added up
    if len(bad):
        place = ", ".join(map(str, bad[0]))
        raise InputError("not finite, or too large to square", where=f"{where} [{place}]", got=y[tuple(bad[0])])
    return y


def _own_file(path: Path) -> Any:
    """y where an archive has it, else its only array."""
    try:
        return read_array(path, "y" if path.suffix.lower() == ".npz" else None)
    except InputError as error:
        if error.what != "no such array":
            raise
        return read_array(path)


def check_settings(chosen: dict[str, Any]) -> RegressionSettings:
    """Settings with their defaults, each checked by the estimator's own rules."""
    chosen = dict(chosen)
    if chosen.pop("no_intercept", False):
        chosen["fit_intercept"] = False
    settings = RegressionSettings(**chosen)
    check_each(settings.as_dict(), PARAMETERS)
    if settings.stopping == "paper" and settings.solver == "active-set":
        wanted = "--solver exact or newton"
        raise InputError("the paper's rule counts coordinate steps", where="--stopping", got="paper", wanted=wanted)
    return settings


def open_run(path: str) -> RunStore:
    """The regression at `path`, its settings checked."""
    run = open_task(path, "regression")
    settings_of(run, {})
    return run


def settings_of(run: RunStore, changes: dict[str, Any]) -> RegressionSettings:
    """The settings that a run was begun with, with some changed."""
    check_changes(changes, MAY_CHANGE, "a regression")
    # Candidates may be given by row numbers or as points, from Python.
    settings = stored_settings(run, RegressionSettings, PARAMETERS, but={"columns": "given"})
    return replace(settings, **changes)


def inputs_again(run: RunStore, settings: RegressionSettings) -> RegressionInputs:
    """What the run was begun with, if it is still that."""
    files = Files.again(run)
    return _together(files, load_rows(files.data), settings)

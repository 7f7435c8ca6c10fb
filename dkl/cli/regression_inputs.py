"""Rows, targets and settings of a kernel regression, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.cli.inputs import check_unchanged, check_values, fingerprint, load_rows, peek_rows
from dkl.cli.runs import open_task
from dkl.datasets import read_array
from dkl.errors import InputError, StoreError
from dkl.estimators.column_settings import RegressionSettings
from dkl.estimators.parameters import KERNEL_PARAMETERS, REGRESSION_PARAMETERS
from dkl.stores.run import RunStore

PARAMETERS = {**KERNEL_PARAMETERS, **REGRESSION_PARAMETERS}
WITH_LABELS = (".npz", ".svmlight", ".svm", ".libsvm")
"""Kinds of files that may have targets beside the rows."""
MAY_CHANGE = ("max_iter", "memory_limit", "checkpoint_every")
"""When a run is gone on with."""


@dataclass(frozen=True)
class RegressionInputs:
    """Rows and targets (n,) or (n, T) that fit together, and where they came from; no file for targets beside the rows."""

    data: Path
    targets_file: Path | None
    rows: RowSource
    targets: NDArray[np.float64]

    def centred(self, settings: RegressionSettings) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(targets (n, T) less their means, those means), as a fit with an intercept wants them."""
        y = self.targets.reshape(self.rows.n, -1)
        offsets = np.average(y, axis=0) if settings.fit_intercept else np.zeros(y.shape[1])
        return y - offsets, offsets

    def fingerprints(self) -> dict[str, Any]:
        data = fingerprint(self.data)
        targets = data if self.targets_file is None else fingerprint(self.targets_file)
        return {
            "data": {**data, "shape": [int(self.rows.n), int(self.rows.n_features)]},
            "targets": {**targets, "shape": list(self.targets.shape), "beside_rows": self.targets_file is None},
        }


def read_inputs(
    data: str | Path, targets: str | Path | None, settings: RegressionSettings, *, values: bool
) -> RegressionInputs:
    """Both files, checked; with `values` all rows are read and must be finite, else their shape alone is."""
    data = Path(data).absolute()
    targets_file = None if targets is None else Path(targets).absolute()
    inputs = _together(data, targets_file, load_rows(data) if values else peek_rows(data), settings)
    if values:
        check_values(inputs.rows)
        check_kernel(inputs.rows, settings)
    return inputs


def _together(data: Path, targets_file: Path | None, rows: RowSource, settings: RegressionSettings) -> RegressionInputs:
    """Rows with their targets, of shapes that a fit can take."""
    if settings.kernel == "precomputed" and rows.n != rows.n_features:
        got = f"shape {(rows.n, rows.n_features)}"
        raise InputError("a precomputed kernel must be square", where=str(data), got=got, wanted="(n, n)")
    if settings.nu == "cv" and rows.n < 2:
        mend = "give --nu as a number"
        raise InputError("cross-validation needs 2 rows", where=str(data), got=f"{rows.n}", mend=mend)
    return RegressionInputs(data, targets_file, rows, read_targets(data, targets_file, rows.n))


def read_targets(data: Path, targets_file: Path | None, n: int) -> NDArray[np.float64]:
    """(n,) or (n, T) finite numbers: from their own file, or those that stand beside the rows. One column is (n,)."""
    if targets_file is not None:
        if targets_file.exists() and not targets_file.is_file():
            raise InputError("not a file", where=str(targets_file), wanted=".csv, .npy or .npz")
        where, found = str(targets_file), _own_file(targets_file)
    else:
        where = f"y of {data}"
        if data.suffix.lower() not in WITH_LABELS:
            raise InputError("no targets", where=str(data), mend="name their file by --targets")
        found = read_array(data, "y")
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


def check_kernel(rows: RowSource, settings: RegressionSettings) -> None:
    """InputError for a kernel that is none on the first rows, as chi2 of negative numbers."""
    kernel = settings.kernel_function
    if not kernel.is_precomputed:
        some = rows.read(0, min(rows.n, 2))
        kernel.diagonal(some)
        if not np.isfinite(kernel.columns(some, some)).all():
            raise InputError("the kernel is not finite", where=kernel.where, mend="scale the features")


def check_settings(chosen: dict[str, Any]) -> RegressionSettings:
    """Settings with their defaults, each checked by the estimator's own rules."""
    chosen = dict(chosen)
    if chosen.pop("no_intercept", False):
        chosen["fit_intercept"] = False
    settings = RegressionSettings(**chosen)
    for name, value in settings.as_dict().items():
        check, wanted = PARAMETERS.get(name, (lambda _: True, ""))
        if not check(value):
            raise InputError("not a value for it", where=name, got=repr(value), wanted=wanted)
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
    stored, where = run.config.get("settings"), f"{run.path}/config.json"
    if not isinstance(stored, dict) or not stored.keys() <= {field.name for field in fields(RegressionSettings)}:
        raise StoreError("no settings that are understood", where=where)
    for name, value in stored.items():
        given = name == "columns" and value == "given"  # by row numbers or as points, from Python
        if name in PARAMETERS and not given and not PARAMETERS[name][0](value):
            raise StoreError(f"a damaged setting {name}", where=where, got=repr(value), wanted=PARAMETERS[name][1])
    for name in changes:
        if name not in MAY_CHANGE:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in MAY_CHANGE)
            raise InputError("not for a regression", where=f"--{name.replace('_', '-')}", wanted=flags)
    return replace(RegressionSettings(**stored), **changes)


def inputs_again(run: RunStore, settings: RegressionSettings) -> RegressionInputs:
    """What the run was begun with, if it is still that."""
    known = run.config.get("inputs")
    try:
        data, targets = known["data"], known["targets"]  # type: ignore[index]
        beside = bool(targets["beside_rows"])
    except (KeyError, TypeError) as error:
        mend = "fit anew, with the data in files"
        raise StoreError("the run does not say what it learns from", where=str(run.path), mend=mend) from error
    path = check_unchanged(data, "rows")
    file = None if beside else check_unchanged(targets, "targets")
    return _together(path, file, load_rows(path), settings)

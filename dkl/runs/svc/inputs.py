"""Rows, labels and settings of a classifier, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.datasets import read_labels
from dkl.errors import InputError
from dkl.estimators.common.parameters import NONE, SVC_PARAMETERS, Check, either, integer, one_of
from dkl.estimators.common.work_folder import next_run
from dkl.estimators.svc.settings import SVCRunSettings
from dkl.linalg.kernel_columns import KERNELS, Kernel
from dkl.runs.files import check_each, check_values, load_rows, peek_rows
from dkl.runs.stored import check_changes, open_task, stored_settings
from dkl.runs.supervised import Files, check_kernel, check_square
from dkl.stores.run import RunStore

MAY_CHANGE = ("max_iter", "memory_limit", "checkpoint_every")
"""When a run is gone on with."""


def _several(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(_is_name(item) for item in value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value in KERNELS and value != "precomputed"


PARAMETERS: dict[str, Check] = {
    **SVC_PARAMETERS,
    "kernel": either(one_of(*KERNELS), (_several, "several of them but precomputed")),
    "class_weight": either(one_of("balanced"), NONE),
    "memory_limit": either(integer(1), NONE),
    "checkpoint_every": either(integer(1), one_of("auto")),
}


@dataclass(frozen=True)
class SVCInputs:
    """Rows and labels (n,) that fit together, the classes, and where they came from."""

    files: Files
    rows: RowSource
    labels: NDArray
    classes: NDArray

    def fingerprints(self) -> dict[str, Any]:
        return self.files.fingerprints(self.rows, self.labels)


def read_inputs(data: str | Path, targets: str | Path | None, settings: SVCRunSettings, *, values: bool) -> SVCInputs:
    """Both files, checked; with `values` all rows are read and must be finite, else their shape alone is."""
    files = Files.of(data, targets)
    inputs = _together(files, load_rows(files.data) if values else peek_rows(files.data), settings)
    if values:
        check_values(inputs.rows)
        for kernel in kernels_of(inputs.rows, settings):
            check_kernel(inputs.rows, kernel)
    return inputs


def _together(files: Files, rows: RowSource, settings: SVCRunSettings) -> SVCInputs:
    """Rows with their labels, of shapes that a fit can take."""
    if settings.kernel == "precomputed":
        check_square(rows, files.data)
    labels = read_classes_of_rows(files, rows.n)
    model = settings.estimator()
    try:
        model._labels(labels, rows.n)
    except InputError as error:
        raise InputError(error.what, where=_labels_place(files), got=error.got, wanted=error.wanted) from error
    return SVCInputs(files, rows, labels, model.classes_)


def read_classes_of_rows(files: Files, n: int) -> NDArray:
    """(n,) labels: from their own file, or those that stand beside the rows."""
    found = read_labels(files.of_targets, n)
    bad = np.flatnonzero(~np.isfinite(found)) if found.dtype.kind == "f" else np.empty(0, int)
    if bad.size:
        raise InputError("not finite", where=f"{_labels_place(files)} [{bad[0]}]", got=found[bad[0]])
    return found


def _labels_place(files: Files) -> str:
    return str(files.of_targets) if files.targets is not None else f"y of {files.data}"


def kernels_of(rows: RowSource, settings: SVCRunSettings) -> list[Kernel]:
    """Those of a fit, with the widths that the rows give them."""
    return settings.estimator()._made_kernels(rows)


def check_settings(chosen: dict[str, Any]) -> SVCRunSettings:
    """Settings with their defaults, each checked by the estimator's own rules."""
    settings = SVCRunSettings(**chosen)
    check_each(settings.as_dict(), PARAMETERS)
    if settings.work_dir is not None:
        next_run(settings.work_dir, "kernel")  # a folder that can be written to
        settings = replace(settings, work_dir=str(Path(settings.work_dir).absolute()))
    if settings.solver == "level" and len(settings.kernel_names) > 1:
        raise InputError("one kernel only", where="--solver level", got=f"{len(settings.kernel_names)} kernels")
    return settings


def open_run(path: str) -> RunStore:
    """The classifier at `path`, its settings checked."""
    run = open_task(path, "svc")
    settings_of(run, {})
    return run


def settings_of(run: RunStore, changes: dict[str, Any]) -> SVCRunSettings:
    """The settings that a run was begun with, with some changed."""
    check_changes(changes, MAY_CHANGE, "a classifier")
    return replace(stored_settings(run, SVCRunSettings, PARAMETERS), **changes)


def inputs_again(run: RunStore, settings: SVCRunSettings) -> SVCInputs:
    """What the run was begun with, if it is still that."""
    files = Files.again(run)
    return _together(files, load_rows(files.data), settings)

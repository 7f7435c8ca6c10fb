"""Rows with what is to be learned of each: the files they come from, and whether these are what they were."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.datasets import read_array
from dkl.errors import InputError, StoreError
from dkl.linalg.kernel_columns import Kernel
from dkl.runs.files import check_unchanged, fingerprint
from dkl.stores.run import RunStore

WITH_LABELS = (".npz", ".svmlight", ".svm", ".libsvm")
"""Kinds of files that may have targets beside the rows."""


@dataclass(frozen=True)
class Files:
    """Where rows and targets come from; no file for targets beside the rows."""

    data: Path
    targets: Path | None

    @classmethod
    def of(cls, data: str | Path, targets: str | Path | None) -> Files:
        return cls(Path(data).absolute(), None if targets is None else Path(targets).absolute())

    @classmethod
    def again(cls, run: RunStore) -> Files:
        """Those that a run was begun with, if they are still that."""
        known = run.config.get("inputs")
        try:
            data, targets = known["data"], known["targets"]  # type: ignore[index]
            beside = bool(targets["beside_rows"])
        except (KeyError, TypeError) as error:
            mend = "fit anew, with the data in files"
            raise StoreError("the run does not say what it learns from", where=str(run.path), mend=mend) from error
        return cls(check_unchanged(data, "rows"), None if beside else check_unchanged(targets, "targets"))

    @property
    def of_targets(self) -> Path:
        """The file that has them; InputError where there can be none."""
        if self.targets is None and self.data.suffix.lower() not in WITH_LABELS:
            raise InputError("no targets", where=str(self.data), mend="name their file by --targets")
        if self.targets is not None and self.targets.exists() and not self.targets.is_file():
            raise InputError("not a file", where=str(self.targets), wanted=".csv, .npy or .npz")
        return self.targets or self.data

    @property
    def may_have_targets(self) -> bool:
        """Whether targets are named, or there is a y beside the rows."""
        if self.targets is not None:
            return True
        suffix = self.data.suffix.lower()
        if suffix != ".npz":
            return suffix in WITH_LABELS
        try:
            read_array(self.data, "y")
        except InputError as error:
            return error.what != "no such array"
        return True

    def fingerprints(self, rows: RowSource, targets: NDArray) -> dict[str, Any]:
        data = fingerprint(self.data)
        labels = data if self.targets is None else fingerprint(self.targets)
        return {
            "data": {**data, "shape": [int(rows.n), int(rows.n_features)]},
            "targets": {**labels, "shape": list(targets.shape), "beside_rows": self.targets is None},
        }


def check_square(rows: RowSource, data: Path) -> None:
    """InputError for what is no whole kernel matrix."""
    if rows.n != rows.n_features:
        got = f"shape {(rows.n, rows.n_features)}"
        raise InputError("a precomputed kernel must be square", where=str(data), got=got, wanted="(n, n)")


def check_kernel(rows: RowSource, kernel: Kernel) -> None:
    """InputError for a kernel that is none on the first rows, as chi2 of negative numbers."""
    if not kernel.is_precomputed:
        some = rows.read(0, min(rows.n, 2))
        kernel.diagonal(some)
        if not np.isfinite(kernel.columns(some, some)).all():
            raise InputError("the kernel is not finite", where=kernel.where, mend="scale the features")

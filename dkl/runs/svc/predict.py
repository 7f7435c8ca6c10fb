"""What a classifier predicts, and how often that is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.errors import InputError
from dkl.estimators.svc.model import load_model
from dkl.runs.apply import Predictor, check_features
from dkl.runs.supervised import Files
from dkl.runs.svc.inputs import read_classes_of_rows, settings_of
from dkl.stores.run import RunStore


def predictor(run: RunStore, decision: bool) -> Predictor:
    settings_of(run, {})
    model = load_model(run)
    classes, scheme = model.classes, model.scheme

    def values(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return scheme.values(model.machines.decide(rows, some))

    def labels(rows: RowBlocks, some: set[int]) -> NDArray:
        return np.asarray(classes[scheme.classes(model.machines.decide(rows, some))])

    width = () if len(classes) == 2 else (len(classes),)
    return Predictor(
        width if decision else (),
        np.float64 if decision else classes.dtype,
        lambda rows, file: check_features(rows, file, model.n_features),
        values if decision else labels,
        lambda files, n: Score.of(files, n, classes, decision),
        f"rows of decision values of {len(classes)} classes" if decision else f"labels of {len(classes)} classes",
    )


@dataclass
class Score:
    """How many labels are right as they pass by, or the largest decision value's class is; beside class labels (n,)."""

    known: NDArray
    classes: NDArray
    decision: bool
    seen: int = 0
    right: int = 0

    @classmethod
    def of(cls, files: Files, n: int, classes: NDArray, decision: bool) -> Score:
        known = read_classes_of_rows(files, n)
        if (known.dtype.kind == "U") != (classes.dtype.kind == "U"):
            got, wanted = ("text", "numbers") if known.dtype.kind == "U" else ("numbers", "text")
            raise InputError("labels of another kind", where=str(files.of_targets), got=got, wanted=wanted)
        return cls(known, classes, decision)

    def see(self, block: NDArray) -> None:
        labels = block
        if self.decision:
            numbers = (block > 0).astype(np.intp) if block.ndim == 1 else block.argmax(axis=1)
            labels = self.classes[numbers]
        self.right += int(np.count_nonzero(labels == self.known[self.seen : self.seen + len(block)]))
        self.seen += len(block)

    def describe(self) -> str:
        wrong = self.seen - self.right
        return f"  accuracy {self.right / self.seen:.6g}, {wrong:,} of {self.seen:,} wrong"

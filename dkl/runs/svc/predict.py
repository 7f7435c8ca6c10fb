"""What a classifier predicts, and how often that is right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.errors import InputError
from dkl.estimators.svc.decisions import Scheme
from dkl.estimators.svc.model import load_model
from dkl.runs.files import Files
from dkl.runs.output import Request
from dkl.runs.predictions import Predictor
from dkl.runs.stored import settings_of
from dkl.runs.supervised import where_targets
from dkl.runs.svc.inputs import read_class_labels
from dkl.stores.run import RunStore


def predictor(run: RunStore, request: Request) -> Predictor:
    """Labels of the stored model, or its decision values."""
    model = load_model(run)
    classes, settings = model.classes, settings_of(run, {})
    scheme = Scheme(len(classes), settings.multi_class)

    def values(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return scheme.values(model.machines.decide(rows, some))

    def labels(rows: RowBlocks, some: set[int]) -> NDArray:
        return np.asarray(classes[scheme.classes(model.machines.decide(rows, some))])

    width = () if len(classes) == 2 else (len(classes),)
    what = "rows of decision values of" if request.decision else "labels of"
    return Predictor(
        width if request.decision else (),
        np.float64 if request.decision else classes.dtype,
        lambda found: model.n_features,
        values if request.decision else labels,
        lambda files, n: ClassScore.of(files, n, classes, request.decision),
        f"{what} {len(classes)} classes",
    )


@dataclass
class ClassScore:
    """How many labels are right as they pass by, or the largest decision value's class is; beside class labels (n,)."""

    known: NDArray
    classes: NDArray
    decision: bool
    seen: int = 0
    right: int = 0

    @classmethod
    def of(cls, files: Files, n: int, classes: NDArray, decision: bool) -> ClassScore:
        """With the labels in the files; InputError for text where classes are numbers, or the reverse."""
        known = read_class_labels(files, n)
        if (known.dtype.kind == "U") != (classes.dtype.kind == "U"):
            got, wanted = ("text", "numbers") if known.dtype.kind == "U" else ("numbers", "text")
            raise InputError("labels of another kind", where=where_targets(files), got=got, wanted=wanted)
        return cls(known, classes, decision)

    def see(self, block: NDArray) -> None:
        """Count what is right among the next labels (m,), or decision values (m,) or (m, classes)."""
        labels = block
        if self.decision:
            numbers = (block > 0).astype(np.intp) if block.ndim == 1 else block.argmax(axis=1)
            labels = self.classes[numbers]
        self.right += int(np.count_nonzero(labels == self.known[self.seen : self.seen + len(block)]))
        self.seen += len(block)

    def describe(self) -> str:
        """The accuracy, in a line."""
        wrong = self.seen - self.right
        return f"  accuracy {self.right / self.seen:.6g}, {wrong:,} of {self.seen:,} wrong"

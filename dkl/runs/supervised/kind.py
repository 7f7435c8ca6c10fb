"""Common base of the runs of learners that predict something of rows by kernels on them, and of classifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.errors import DklError, InputError
from dkl.estimators.base.classes import describe_classes
from dkl.estimators.base.settings import Settings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.plotting.figures import PlotData, figure_of
from dkl.runs.inputs.files import Files, Lazy
from dkl.runs.inputs.readers import check_values
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.predictions import Needs, Predictor, predictions
from dkl.runs.registry import RunKind
from dkl.runs.supervised.inputs import (
    ClassInputs,
    SupervisedInputs,
    check_kernels,
    in_file,
    read_class_labels,
    where_targets,
)
from dkl.side_information.labels import require_labels
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json


WHOSE = "rows learned from"
"""Name of the rows in a run's picture."""


S = TypeVar("S", bound=Settings)
I = TypeVar("I", bound=SupervisedInputs)  # noqa: E741  # of inputs


class SupervisedRuns(RunKind[S, I]):
    """Base of runs for which a learner supplies kernels, predictions and drawing; see `RunKind` for the rest."""

    @abstractmethod
    def kernels(self, found: I, settings: S) -> list[Kernel]:
        """Return the kernels that the settings name, as the learner makes them from these rows."""

    def check_values(self, found: I, settings: S) -> None:
        """Raise InputError for a value that is not finite, or a kernel that is invalid on these rows."""
        check_values(found.rows)
        check_kernels(found.rows, self.kernels(found, settings))

    @abstractmethod
    def predictor(self, run: RunStore, request: OutputRequest) -> Predictor:
        """Return the predictor of the run's model for a request; InputError for what it cannot predict."""

    @abstractmethod
    def plot_data(self, model: Any, X: Any, y: Any) -> PlotData:
        """Return the plot of the fitted estimator: of rows X and targets y, or None of each, called WHOSE."""

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of the command's verb for the rows of a file."""
        return predictions(self.predictor(run, request), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[I]) -> Any:
        """Return the learner's picture, of the rows that it learned from if they still exist."""
        X = y = None
        with suppress(DklError):  # the rows are gone, or have changed: what needs them is left out
            X, y = found().rows, found().targets
        return figure_of(self.plot_data(self.load(run), X, y))


class ClassifierRuns(SupervisedRuns[S, ClassInputs]):
    """A classifier in a run's folder, which remembers its classes. Its settings have a `kernel`."""

    def config(self, found: ClassInputs) -> Json:
        """Return the classes as the run's configuration stores them."""
        return {"classes": describe_classes(found.classes)}


VOTE_BYTES = 48
"""Bytes per row and class: votes, sums that break ties, and what classes are made from."""


class ClassRule(Protocol):
    """Rule that makes k classes, or their decision values, of what a model computes for rows."""

    def values(self, found: Any) -> NDArray[np.float64]:
        """Return decision values: (m,) of two classes, or (m, k)."""

    def classes(self, found: NDArray) -> NDArray[np.intp]:
        """Return class numbers (m,)."""


def class_predictor(
    classes: NDArray,
    n_features: int,
    decide: Callable[[RowBlocks, set[int]], NDArray],
    scheme: ClassRule,
    request: OutputRequest,
    needs: Needs,
    of_kernel: bool = False,
) -> Predictor:
    """Return a predictor of class labels, or of decision values if the request asks for these.

    decide: what the model computes for the rows of some blocks, for `scheme`. needs: bytes that `decide` takes.
    of_kernel: as of `Predictor`.
    """

    def values(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return scheme.values(decide(rows, some))

    def labels(rows: RowBlocks, some: set[int]) -> NDArray:
        return np.asarray(classes[scheme.classes(decide(rows, some))])

    # Two classes have one decision value, as scikit-learn has it.
    width = () if len(classes) == 2 else (len(classes),)
    what = "rows of decision values of" if request.decision else "labels of"
    return Predictor(
        width if request.decision else (),
        np.float64 if request.decision else classes.dtype,
        lambda found: n_features,
        values if request.decision else labels,
        lambda files, n: ClassScore.of(files, n, classes, request.decision),
        f"{what} {len(classes)} classes",
        needs.with_more(VOTE_BYTES * len(classes) + needs.row + classes.itemsize),
        of_kernel=of_kernel,
        # Of two classes the value's sign is for the second: it names the column.
        columns=tuple(f"decision_{name}" for name in (classes if width else classes[1:])) if request.decision else None,
    )


@dataclass
class ClassScore:
    """Share of correct predictions, counted block by block against class labels (n,).
    Of decision values, the class of the largest is compared."""

    known: NDArray
    classes: NDArray
    decision: bool
    seen: int = 0
    right: int = 0

    @property
    def nbytes(self) -> int:
        """Return the size of the labels in bytes."""
        return self.known.nbytes

    @classmethod
    def of(cls, files: Files, n: int, classes: NDArray, decision: bool) -> ClassScore:
        """Return a score with the labels in the files.
        Raises InputError for a missing label, and for text where classes are numbers or the reverse."""
        known = read_class_labels(files, n)
        try:
            require_labels(known)
        except InputError as error:
            raise in_file(error, files, n) from error
        # "1" and 1 are never equal: an accuracy of 0 would be no error but a lie.
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
        """Return the accuracy, in a line."""
        wrong = self.seen - self.right
        return f"  accuracy {self.right / self.seen:.6g}, {wrong:,} of {self.seen:,} wrong"

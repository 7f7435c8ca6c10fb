"""Data of the picture of a classifier, in small arrays, from an estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dkl._labels import require_labels
from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, NumericalError
from dkl.estimators.common.drawing import counted, gap_text, titled
from dkl.estimators.common.samples import read_rows, some_rows
from dkl.estimators.common.validation import given_rows
from dkl.estimators.common.views import MOST_DECIDED
from dkl.estimators.svc.decisions import Machines, Scheme
from dkl.estimators.svc.training import Training
from dkl.quality import Quality

TRAINING_ROWS = 2000
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class RowsShown:
    """Decisions of a classifier on rows of `n`: codes, predicted (m,) class numbers; margins (m,).

    A margin is y g(x) of the machine between two classes; of several machines one against one the least y g(x) among those
    of the row's own class; one against the rest the row's own g(x) less the largest other. Below zero the row is on the
    wrong side. whose: "rows learned from", say.
    """

    codes: NDArray[np.intp]
    predicted: NDArray[np.intp]
    margins: Numbers
    n: int
    whose: str = "rows learned from"


@dataclass(frozen=True)
class SVCShown:
    """Data of the picture of a classifier of k classes with M machines.

    names of the classes; multi_class: "ovo" or "ovr"; rows: what it says of some rows, or None; history: rows of the solver,
    with `machine`; relative_gaps (M,), tol asked for; n_support; quality: accuracy on held-out rows.
    """

    names: tuple[str, ...]
    multi_class: str
    n_support: int
    relative_gaps: Numbers
    tol: float | None = None
    rows: RowsShown | None = None
    history: Sequence[dict[str, Any]] = field(default=(), repr=False)
    quality: Quality | None = None

    @property
    def confusion(self) -> NDArray[np.int64] | None:
        """Return counts (k, k), rows classes, columns predictions; None where no rows are known."""
        if self.rows is None:
            return None
        counts = np.zeros((len(self.names), len(self.names)), np.int64)
        np.add.at(counts, (self.rows.codes, self.rows.predicted), 1)
        return counts

    @property
    def title(self) -> str:
        """Return a summary in one line."""
        parts = [counted(len(self.names), "class", "classes"), counted(self.n_support, "support vector")]
        parts.append(counted(len(self.relative_gaps), "machine"))
        without = np.count_nonzero(~np.isfinite(self.relative_gaps))
        proof = gap_text(float(self.relative_gaps.max()))
        if 0 < without < len(self.relative_gaps):
            proof = f"no gap is proven of {without:,} of them"
        return titled(self.quality, f"{', '.join(parts)}; {proof}")


def margins_of(decisions: Numbers, codes: NDArray[np.intp], n_classes: int, multi_class: str) -> Numbers:
    """Return margins (m,) of rows with class numbers `codes`, from decisions (m, M). See `RowsShown`."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0) * decisions[:, 0]
    if multi_class == "ovr":
        own = np.arange(n_classes) == codes[:, None]
        return decisions[own] - np.where(own, -np.inf, decisions).max(axis=1)
    first, second = np.triu_indices(n_classes, k=1)
    signs = (codes[:, None] == first).astype(float) - (codes[:, None] == second)
    return np.where(signs == 0, np.inf, signs * decisions).min(axis=1)


def rows_shown(
    machines: Machines, scheme: Scheme, rows: RowSource, codes: NDArray[np.intp], chosen: NDArray[np.intp], whose: str
) -> RowsShown:
    """Return the machines' decisions on the chosen (m,) of all rows (n, d), with class numbers codes (m,)."""
    decisions = machines.decide(RowBlocks(read_rows(rows, chosen), Session(None, threads=1)))
    codes = np.asarray(codes, np.intp)
    margins = margins_of(decisions, codes, scheme.n_classes, scheme.multi_class)
    return RowsShown(codes, scheme.classes(decisions), margins, rows.n, whose)


def training_rows(machines: Machines, scheme: Scheme, training: Training) -> RowsShown | None:
    """Return a fitted classifier's training data for `plot`; None if it would cost more than a moment.

    Rows without weight were not learned from. A kernel function of one's own is not asked again, nor are rows read again
    that only another library can read.
    """
    source = training.source
    if any(callable(kernel.name) for kernel in machines.kernels) or source.is_dask or source.is_foreign:
        return None
    chosen = some_rows(source, TRAINING_ROWS)
    chosen = chosen[training.bounds[chosen] > 0]
    try:
        return rows_shown(machines, scheme, source, training.numbers[chosen], chosen, "rows learned from")
    except NumericalError:  # `predict` will raise it
        return None


def shown_of(model: Any, X: Any = None, y: Any = None, whose: str = "rows given") -> SVCShown:
    """Return the picture's data of a fitted classifier, with decisions on X or on stored training rows.

    X (m, d) comes with classes y (m,).

    whose: what X is called in titles: a run passes the "rows learned from".
    """
    check_is_fitted(model)
    if (X is None) != (y is None):
        raise InputError("rows and classes go together", where="plot", remedy="pass both X and y, or neither")
    rows = getattr(model, "_rows_kept", None)
    if X is not None:
        source = row_source(given_rows(model, X, reset=False))
        codes, chosen = _class_numbers(model.classes_, y, source.n), some_rows(source, MOST_DECIDED)
        rows = rows_shown(model._machines, model._scheme, source, codes[chosen], chosen, whose)
    result = getattr(model, "result_", None)
    return SVCShown(
        tuple(map(str, model.classes_.tolist())), model.multi_class, len(model.support_), np.asarray(model.relative_gap_),
        float(model.tol), rows, [] if result is None else result.history,
        None if result is None else result.quality,
    )  # fmt: skip


def _class_numbers(classes: NDArray, y: Any, n: int) -> NDArray[np.intp]:
    """Return the places (n,) of labels among the classes learned."""
    require_labels(y)
    labels = np.asarray(y)
    if labels.shape != (n,):
        raise InputError("not a class a row", where="y", got=f"shape {labels.shape}", wanted=f"({n},)")
    known = np.isin(labels, classes)
    if not known.all():
        wanted = "classes that were learned"
        raise InputError("an unknown class", where="y", got=repr(labels[~known][0].item()), wanted=wanted)
    return np.searchsorted(classes, labels)

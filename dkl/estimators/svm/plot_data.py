"""Plot of a classifier: its confusions, its margins, and the convergence of its machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, NumericalError
from dkl.estimators.base.plot_rows import MOST_DECIDED, read_rows, some_rows
from dkl.estimators.base.validation import given_rows
from dkl.estimators.svm.decisions import Machines, Scheme, Training
from dkl.plotting.convergence import draw_gaps, draw_last_gaps
from dkl.plotting.figures import Panel, PlotData, counted, gap_text, note, panel, titled
from dkl.plotting.panels import draw_counts, draw_histogram
from dkl.side_information.labels import require_labels

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.validation import UserLabels, UserRows

TRAINING_ROWS = 2000
BINS = 50
TAIL = 0.5
"""Percent of the margins at either end that are put in the outermost bins."""
WANTED = "pass X and y of rows held out to plot"
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class DrawnDecisions:
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


def plot_data(model: BaseEstimator, X: UserRows = None, y: UserLabels = None, whose: str = "rows given") -> PlotData:
    """Return the plot of a fitted classifier, with decisions on X or on stored training rows.

    X (m, d) comes with classes y (m,); whose: what X is called in titles.
    """
    if (X is None) != (y is None):
        raise InputError("rows and classes go together", where="plot", remedy="pass both X and y, or neither")
    rows = getattr(model, "_rows_kept", None)
    if X is not None:
        source = row_source(given_rows(model, X, reset=False))
        codes, chosen = _class_numbers(model.classes_, y, source.n), some_rows(source, MOST_DECIDED)
        rows = drawn_decisions(model._machines, model._scheme, source, codes[chosen], chosen, whose)
    result, names, gaps = getattr(model, "result_", None), tuple(map(str, model.classes_.tolist())), model.relative_gap_
    panels = decision_panels(rows, names, model.multi_class)
    if result is not None and result.history:
        panels.append(panel(draw_gaps, result.history, "machine", float(model.tol)))
    if len(gaps) > 1:
        title, x = "proven relative gap of each machine", "machine, smallest gap first"
        panels.append(panel(draw_last_gaps, gaps, float(model.tol), title, x))
    parts = [counted(len(names), "class", "classes"), counted(len(model.support_), "support vector")]
    without, proof = np.count_nonzero(~np.isfinite(gaps)), gap_text(float(gaps.max()))
    if 0 < without < len(gaps):
        proof = f"no gap is proven of {without:,} of them"
    title = f"{', '.join(parts)}, {counted(len(gaps), 'machine')}; {proof}"
    return PlotData(titled(None if result is None else result.quality, title), panels)


def decision_panels(rows: DrawnDecisions | None, names: Sequence[str], multi_class: str) -> list[Panel]:
    """Return the panels of the confusion matrix and of the margins, or of what to pass to see them."""
    if rows is None:
        confusions, margins = (
            f"to see which classes are taken for which,\n{WANTED}",
            f"to see how clearly classes are separated,\n{WANTED}",
        )
        return [panel(note, confusions, "confusion matrix"), panel(note, margins, "margins")]
    count, is_right = len(rows.codes), rows.codes == rows.predicted
    which = f"{count:,} of {rows.n:,} {rows.whose}" if count < rows.n else f"the {rows.n:,} {rows.whose}"
    confusion = np.zeros((len(names), len(names)), np.int64)
    np.add.at(confusion, (rows.codes, rows.predicted), 1)
    title = f"confusion matrix on {which}:\n{float(np.mean(is_right)):.2%} are right"
    # One far outlier would leave all others in a single bin.
    low, high = np.percentile(rows.margins, [TAIL, 100 - TAIL])
    low, high = min(low, -0.2), max(high, 1.2)
    width = (high - low) / BINS
    bins = width * np.arange(np.floor(low / width), np.ceil(high / width) + 1)  # 0 is an edge
    inside = np.clip(rows.margins, bins[0], bins[-1])
    kinds = [(inside[is_right], "predicted rightly", "C0"), (inside[~is_right], "predicted wrongly", "C3")]
    groups = [(values, f"{text}: {len(values):,}", colour) for values, text, colour in kinds if len(values)]
    marks: list[tuple[float, str, str | None]] = [(0.0, "-", None)]
    name = "g(x) of the own class less the largest other"
    if multi_class == "ovo" or len(names) == 2:
        marks.append((1.0, "--", "the margin, 1"))
        name = "least y g(x) of the machines of the own class"
    if len(names) == 2:
        name = "y g(x): below 0 on the wrong side"
    return [
        panel(draw_counts, confusion, names, names, title=title, rows="class", columns="predicted"),
        panel(draw_histogram, groups, bins, f"margins of {which}", name, "rows", marks=marks),
    ]


def margins_of(decisions: Numbers, codes: NDArray[np.intp], n_classes: int, multi_class: str) -> Numbers:
    """Return margins (m,) of rows with class numbers `codes`, from decisions (m, M). See `DrawnDecisions`."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0) * decisions[:, 0]
    if multi_class == "ovr":
        own = np.arange(n_classes) == codes[:, None]
        return decisions[own] - np.where(own, -np.inf, decisions).max(axis=1)
    first, second = np.triu_indices(n_classes, k=1)
    signs = (codes[:, None] == first).astype(float) - (codes[:, None] == second)
    # Machines of two other classes say nothing of the row.
    return np.where(signs == 0, np.inf, signs * decisions).min(axis=1)


def drawn_decisions(
    machines: Machines, scheme: Scheme, rows: RowSource, codes: NDArray[np.intp], chosen: NDArray[np.intp], whose: str
) -> DrawnDecisions:
    """Return the machines' decisions on the chosen (m,) of all rows (n, d), with class numbers codes (m,)."""
    decisions = machines.decide(RowBlocks(read_rows(rows, chosen), Session(None, threads=1)))
    codes = np.asarray(codes, np.intp)
    margins = margins_of(decisions, codes, scheme.n_classes, scheme.multi_class)
    return DrawnDecisions(codes, scheme.classes(decisions), margins, rows.n, whose)


def training_decisions(machines: Machines, scheme: Scheme, training: Training) -> DrawnDecisions | None:
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
        return drawn_decisions(machines, scheme, source, training.numbers[chosen], chosen, "rows learned from")
    except NumericalError:  # `predict` will raise it
        return None


def _class_numbers(classes: NDArray, y: UserLabels, n: int) -> NDArray[np.intp]:
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

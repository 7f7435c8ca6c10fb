"""Picture of a classifier: its confusions, its margins, and the convergence of its machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkl.estimators.common import drawing
from dkl.estimators.common.convergence import LEAST, draw_gaps
from dkl.estimators.common.drawing import GREY, count_y, legend, log_y, note, panel, tidy, whole_numbers
from dkl.estimators.common.tables import draw_counts
from dkl.estimators.svc.shown import RowsShown, SVCShown
from dkl.estimators.svc.shown import shown_of as shown_of

BINS = 50
TAIL = 0.5
"""Percent of the margins at either end that are put in the outermost bins."""
WANTED = "pass X and y of rows held out to plot"


def draw(figure: Any, shown: SVCShown) -> None:
    """Draw all panels into an empty figure."""
    panels = [panel(draw_one, shown), panel(draw_margins, shown)]
    if shown.history:
        panels.append(panel(draw_gaps, shown.history, "machine", shown.tol))
    if len(shown.relative_gaps) > 1:
        panels.append(panel(draw_machines, shown))
    drawing.grid(figure, panels, 3 if len(panels) == 3 else 2, shown.title)


def draw_one(axis: Any, shown: SVCShown) -> None:
    """Draw the confusion matrix."""
    if shown.rows is None or shown.confusion is None:
        note(axis, f"to see which classes are taken for which,\n{WANTED}", "confusion matrix")
        return
    right = float(np.mean(shown.rows.codes == shown.rows.predicted))
    title = f"confusion matrix on {_which(shown.rows)}:\n{right:.2%} are right"
    draw_counts(axis, shown.confusion, shown.names, shown.names, title=title, rows="class", columns="predicted")


def _which(rows: RowsShown) -> str:
    count = len(rows.codes)
    return f"{count:,} of {rows.n:,} {rows.whose}" if count < rows.n else f"the {rows.n:,} {rows.whose}"


def draw_margins(axis: Any, shown: SVCShown) -> None:
    """Draw a histogram of the margins, of rows that are predicted rightly and wrongly."""
    title = "margins"
    if shown.rows is None:
        note(axis, f"to see how clearly classes are separated,\n{WANTED}", title)
        return
    margins, is_right = shown.rows.margins, shown.rows.codes == shown.rows.predicted
    low, high = np.percentile(margins, [TAIL, 100 - TAIL])
    low, high = min(low, -0.2), max(high, 1.2)
    width = (high - low) / BINS
    bins = width * np.arange(np.floor(low / width), np.ceil(high / width) + 1)  # 0 is an edge
    inside = np.clip(margins, bins[0], bins[-1])
    for chosen, label, colour in ((is_right, "predicted rightly", "C0"), (~is_right, "predicted wrongly", "C3")):
        if chosen.any():
            axis.hist(inside[chosen], bins, color=colour, alpha=0.7, label=f"{label}: {np.count_nonzero(chosen):,}")
    axis.axvline(0, color=GREY, lw=1.2)
    if shown.multi_class == "ovo" or len(shown.names) == 2:
        axis.axvline(1, color=GREY, ls="--", lw=1.2, label="the margin, 1")
    count_y(axis)
    legend(axis)
    tidy(axis, f"{title} of {_which(shown.rows)}", _margin_name(shown), "rows")


def _margin_name(shown: SVCShown) -> str:
    if len(shown.names) == 2:
        return "y g(x): below 0 on the wrong side"
    if shown.multi_class == "ovr":
        return "g(x) of the own class less the largest other"
    return "least y g(x) of the machines of the own class"


def draw_machines(axis: Any, shown: SVCShown) -> None:
    """Draw the relative gap that each machine ended at, in order."""
    title, proven = "proven relative gap of each machine", np.isfinite(shown.relative_gaps)
    gaps = np.sort(np.maximum(shown.relative_gaps[proven], LEAST))
    if not len(gaps):
        note(axis, "no gap is proven", title)
        return
    if len(gaps) < len(proven):
        title = f"{title} but {len(proven) - len(gaps):,}, where none is"
    axis.plot(np.arange(1, len(gaps) + 1), gaps, "o", ms=4 if len(gaps) < 200 else 2)
    if shown.tol:
        axis.axhline(shown.tol, color=GREY, ls="--", lw=1.1, label=f"asked for: {shown.tol:.2g}")
        legend(axis)
    log_y(axis)
    axis.set_ylim(top=max(gaps[-1], shown.tol or 0.0) * 10)
    whole_numbers(axis.xaxis)
    tidy(axis, title, "machine, smallest gap first", "relative gap")

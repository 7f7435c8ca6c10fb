"""Picture of a learned kernel: patterns before and after, the kernel by clusters, pairs, convergence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.common import drawing
from dkl.estimators.common.convergence import WIDE, draw_history
from dkl.estimators.common.drawing import (
    GREY,
    count_y,
    counted,
    head,
    legend,
    log_y,
    name_ticks,
    note,
    panel,
    tidy,
    whole_numbers,
    written,
)
from dkl.estimators.common.views import Plane, draw_view
from dkl.estimators.pairwise.shown import PairwiseShown, make_shown
from dkl.estimators.pairwise.shown import shown_of as shown_of
from dkl.solvers.gamma_scores import GammaChoice

KERNEL_ROWS = 400
ROOM = 0.04
"""Minimum share of the axis for a class to have its name next to the kernel."""


def draw(figure: Any, shown: PairwiseShown, title: str | None = None) -> None:
    """Draw all panels into an empty figure."""
    panels = [] if shown.raw is None else [panel(draw_raw, shown)]
    panels += [panel(draw_one, shown), panel(draw_kernel, shown)]
    if shown.must is not None or shown.cannot is not None:
        panels.append(panel(draw_pairs, shown))
    panels.append(panel(draw_eigenvalues, shown))
    if shown.cv is not None:
        panels.append(panel(draw_choice, shown.cv))
    if shown.history:
        panels.append(lambda figure, place: draw_history(figure, place, shown.history))
    drawing.grid(figure, panels, 3 if len(panels) != 4 else 2, shown.title if title is None else title)


def draw_one(axis: Any, shown: PairwiseShown) -> None:
    """Draw the patterns as the kernel sees them."""
    which = f"{len(shown.factor):,} of {counted(shown.n, 'pattern')}" if len(shown.factor) < shown.n else ""
    if shown.is_found:
        found = counted(len(shown.names), "cluster") + " found by k-means"
        which = f"{which}, {found}" if which else found
    title = "learned kernel, first two principal components"
    draw_view(axis, Plane.of(shown.factor).project(shown.factor), shown.codes, shown.names,
              f"{title}\n{which}" if which else title)  # fmt: skip


def draw_raw(axis: Any, shown: PairwiseShown) -> None:
    """Draw the patterns as they were given."""
    points = Plane.of(shown.raw).project(shown.raw)
    draw_view(axis, points, shown.codes, shown.names, "raw patterns, first two principal components")


def draw_kernel(axis: Any, shown: PairwiseShown) -> None:
    """Draw K for some patterns, ordered by class: blocks, where the kernel has found the classes."""
    some = np.sort(np.random.default_rng(0).permutation(len(shown.factor))[:KERNEL_ROWS])
    some = some[np.argsort(shown.codes[some], kind="stable")]
    rows, codes = shown.factor[some], shown.codes[some]
    image = axis.imshow(rows @ rows.T, cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
    present, first = np.unique(codes, return_index=True)
    edges = [*first.tolist(), len(some)]
    wide = [k for k in range(len(present)) if edges[k + 1] - edges[k] >= ROOM * len(some)]
    middles = [(edges[k] + edges[k + 1]) / 2 - 0.5 for k in wide]
    short = written(shown.names)
    names = [short[present[k]] if present[k] >= 0 else "none" for k in wide]
    for which in ("x", "y"):
        name_ticks(axis, which, middles, names)
    what = "clusters" if shown.is_found else "classes"
    head(axis, f"the learned kernel on {counted(len(some), 'pattern')},\nin the order of their {what}")
    axis.figure.colorbar(image, cax=axis.inset_axes((1.02, 0, 0.03, 1)))


def draw_pairs(axis: Any, shown: PairwiseShown) -> None:
    """Draw the kernel's values at the pairs: 1 is wanted at must-link pairs, 0 at cannot-link pairs."""
    title = "the learned kernel at the pairs"
    kinds = [(shown.must, "must-link: 1 is asked for", "C2"), (shown.cannot, "cannot-link: 0 is asked for", "C3")]
    there = [(values, label, colour) for values, label, colour in kinds if values is not None and len(values)]
    if not there:
        note(axis, "no pairs were given", title)
        return
    least = min(0.0, *(float(values.min()) for values, _, _ in there))
    most = max(1.0, *(float(values.max()) for values, _, _ in there))
    bins = np.linspace(least, most, 41)
    for values, label, colour in there:
        axis.hist(values, bins, color=colour, alpha=0.6, label=f"{label} ({len(values):,} drawn)")
    count_y(axis)
    legend(axis, loc="upper center")
    tidy(axis, title, "kernel value", "pairs")


def draw_choice(axis: Any, cv: GammaChoice) -> None:
    """Draw the mean log-likelihood of held-out pairs, by gamma."""
    count = np.maximum(np.count_nonzero(~np.isnan(cv.scores), axis=1), 1)
    axis.plot(cv.gammas, cv.log_likelihood / count, "o-", ms=4, lw=1.8, color="C0")
    axis.set_xscale("log")
    axis.axvline(cv.gamma, color=GREY, ls="--", lw=1.2, label=f"chosen gamma {cv.gamma:.3g}")
    legend(axis)
    tidy(axis, "pairs held out", "gamma", "mean log-likelihood")


def draw_eigenvalues(axis: Any, shown: PairwiseShown) -> None:
    """Draw the largest eigenvalues of K; a drop shows how many clusters it keeps apart."""
    count = len(shown.names)
    values = shown.eigenvalues[: max(30, 2 * count)]
    axis.plot(np.arange(1, len(values) + 1), np.maximum(values, 1e-6 * max(float(values[0]), 1e-300)), "o-", ms=4, lw=1)
    if values[0] > WIDE * values[-1]:
        log_y(axis)
    else:
        axis.set_ylim(bottom=0)
    what = f"{counted(count, 'cluster')} found" if shown.is_found else f"{counted(count, 'class', 'classes')} given"
    axis.axvline(count + 0.5, color=GREY, ls="--", lw=1.1, label=what)
    axis.set_xlim(0, max(len(values), count) + 1)
    whole_numbers(axis.xaxis)
    legend(axis)
    tidy(axis, "eigenvalues of the learned kernel, largest first", "number", "eigenvalue")


def draw_report(
    path: str | Path, X: NDArray, labels: NDArray, factor: NDArray, history: list[dict[str, Any]], title: str
) -> Path:
    """Write the picture of a kernel whose classes are known, as PNG (PDF or SVG by suffix).

    Needs matplotlib.

    X (n, d) raw patterns; labels (n,) integers, for the colors; factor (n, r), K = factor factor'; history: the rows of
    the iterations.
    """
    figure = drawing.new_figure()
    draw(figure, make_shown(factor, rows=X, labels=labels, history=history), title)
    return drawing.save(figure, path)

"""Panels of matrices: a kernel in the order of classes, and counts of two sets of classes against each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.axes import counted, head, name_ticks, thinned, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMES = 25
ROOM = 0.04
"""Minimum share of the axis for a class to have its name next to the kernel."""
WRITTEN = 16
"""Maximum rows and columns for the counts themselves to be written."""


def draw_counts(
    axis: Axes,
    counts: NDArray[np.int64],
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    title: str,
    rows: str,
    columns: str,
) -> None:
    """Draw counts (a, b), colored by the root of their share of the row, so that few errors are visible."""
    from matplotlib.colors import PowerNorm

    totals = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    image = axis.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto")
    if max(counts.shape) <= WRITTEN:
        size = 9 if max(counts.shape) > 6 and counts.max() < 10_000 else 7 if max(counts.shape) > 6 else 11
        for i, j in np.argwhere(counts > 0):
            colour = "white" if shares[i, j] > 0.4 else "0.15"
            axis.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", fontsize=size, color=colour)
    else:
        bar = axis.figure.colorbar(image, cax=axis.inset_axes((1.02, 0, 0.03, 1)), ticks=[0, 0.01, 0.1, 0.5, 1])
        bar.ax.set_yticklabels(["0", "1 %", "10 %", "50 %", "all"])
    for which, names in (("x", column_names), ("y", row_names)):
        some, short = thinned(len(names), MOST_NAMES), written(names)
        name_ticks(axis, which, [float(k) for k in some], [short[k] for k in some])
    axis.set_xlabel(columns, color="0.35")
    axis.set_ylabel(rows, color="0.35")
    head(axis, title)


def draw_kernel(
    axis: Axes, K: NDArray[np.float64], codes: NDArray[np.intp], names: Sequence[str], classes: str
) -> None:
    """Draw K (m, m), ordered by class (codes (m,), -1 none): blocks, where the kernel has found the classes."""
    order = np.argsort(codes, kind="stable")
    image = axis.imshow(K[np.ix_(order, order)], cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
    present, first = np.unique(codes[order], return_index=True)
    edges = [*first.tolist(), len(codes)]
    wide = [k for k in range(len(present)) if edges[k + 1] - edges[k] >= ROOM * len(codes)]
    short = written(names)
    for which in ("x", "y"):
        name_ticks(
            axis, which, [(edges[k] + edges[k + 1]) / 2 - 0.5 for k in wide],
            [short[present[k]] if present[k] >= 0 else "none" for k in wide],
        )  # fmt: skip
    head(axis, f"the learned kernel on {counted(len(codes), 'pattern')},\nin the order of their {classes}")
    axis.figure.colorbar(image, cax=axis.inset_axes((1.02, 0, 0.03, 1)))

"""A picture of a learned kernel: the patterns before and after, the kernel by classes, and how the fit went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

KERNEL_ROWS = 400
DOT_ROWS = 5000
GREY = "0.35"


def draw_report(
    path: str | Path, X: NDArray, labels: NDArray, factor: NDArray, history: list[dict[str, Any]], title: str
) -> Path:
    """Four panels as PNG (or by the path's suffix). Needs matplotlib (`pip install 'dkl[report]'`).

    X (n, d) raw patterns; labels (n,) integers, for the colours; factor (n, r), K = factor factor'; history: the rows of
    the iterations.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 11), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13)
    axes = figure.subplots(2, 2)
    draw_points(axes[0, 0], two_axes(X), labels, "raw patterns, first two principal components")
    draw_points(axes[0, 1], two_axes(factor), labels, "learned kernel, first two kernel principal components")
    draw_kernel(figure, axes[1, 0], factor, labels)
    draw_history(axes[1, 1], history)
    figure.savefig(path)
    return Path(path)


def two_axes(points: NDArray) -> NDArray[np.float64]:
    """(n, 2) principal components; of a factor's rows these are the kernel's."""
    centred = np.asarray(points, dtype=float) - np.mean(points, axis=0, dtype=float)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, ::-1][:, :2]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])  # the same picture every time
    return centred @ axes


def draw_points(axis: Any, points: NDArray, labels: NDArray, title: str) -> None:
    """A dot a pattern, coloured by class, with each class's name at the middle of its dots."""
    from matplotlib import colormaps
    from matplotlib.patheffects import withStroke

    colours = colormaps["tab10"]
    shown = np.random.default_rng(0).permutation(len(points))[:DOT_ROWS]
    axis.scatter(*points[shown].T, c=colours(labels[shown] % 10), s=9, alpha=0.55, linewidths=0)
    for label in np.unique(labels):
        middle = np.median(points[labels == label], axis=0)
        outline = [withStroke(linewidth=3, foreground="white")]
        colour = colours(label % 10)
        axis.text(*middle, str(label), color=colour, fontsize=15, weight="bold", ha="center", va="center",
                  path_effects=outline)  # fmt: skip
    axis.set_title(title, fontsize=11)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.set_aspect("equal", adjustable="datalim")


def draw_kernel(figure: Any, axis: Any, factor: NDArray, labels: NDArray) -> None:
    """K for some patterns in the order of their classes: blocks, where the kernel has found the classes."""
    n = len(factor)
    some = np.sort(np.random.default_rng(0).permutation(n)[:KERNEL_ROWS])
    some = some[np.argsort(labels[some], kind="stable")]
    rows = np.asarray(factor[some], dtype=float)
    image = axis.imshow(rows @ rows.T, cmap="magma_r", vmin=0, vmax=1, interpolation="nearest")
    classes, first = np.unique(labels[some], return_index=True)
    edges = [*first, len(some)]
    middles = [(lo + hi) / 2 - 0.5 for lo, hi in zip(edges[:-1], edges[1:], strict=True)]
    axis.set_xticks(middles, classes)
    axis.set_yticks(middles, classes)
    axis.tick_params(length=0)
    axis.set_title(f"the learned kernel on {len(some)} patterns, in the order of their classes", fontsize=11)
    figure.colorbar(image, ax=axis, shrink=0.85, pad=0.02)


def draw_history(axis: Any, history: list[dict[str, Any]]) -> None:
    """Objective and both residuals by iteration, all logarithmic."""
    rows = [row for row in history if "primal_residual" in row]
    iterations = [row["iteration"] for row in rows]
    styles = {
        "objective": ("objective", "tab:blue", "-", 2.2),
        "primal_residual": ("primal residual |V - U|", "tab:orange", "-", 1.4),
        "dual_residual": ("dual residual", "tab:green", "-", 1.4),
    }
    for name, (label, colour, line, width) in styles.items():
        axis.plot(iterations, [max(row[name], 1e-300) for row in rows], line, color=colour, lw=width, label=label)
    axis.set_yscale("log")
    axis.set_xlabel("iteration")
    axis.set_title("convergence", fontsize=11)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=10)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(colors=GREY)

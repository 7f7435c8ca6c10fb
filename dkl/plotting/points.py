"""Panels of points: rows in a plane with the names of their classes, and predicted against observed values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.axes import GREY, colours, head, legend, tidy, written

NAMED = 30
"""Maximum classes whose names are written among the points."""


def draw_points(
    axis: Any, points: NDArray[np.float64], codes: NDArray[np.intp], names: Sequence[str], title: str
) -> None:
    """Draw a dot a pattern (points (m, 2)), colored by class (codes (m,), -1 none), with class names."""
    palette = colours(max(len(names), 1))
    size, alpha = (9, 0.55) if len(points) > 300 else (24, 0.75)
    unknown = codes < 0
    axis.scatter(*points[unknown].T, color="0.8", s=size, linewidths=0, zorder=1)
    axis.scatter(*points[~unknown].T, c=palette[codes[~unknown]], s=size, alpha=alpha, linewidths=0, zorder=2)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    head(axis, title)
    if 1 < len(names) <= NAMED:
        middles = {c: np.median(points[codes == c], axis=0) for c in range(len(names)) if (codes == c).any()}
        write_names(axis, middles, written(names), palette)


def write_names(
    axis: Any, middles: dict[int, NDArray[np.float64]], names: Sequence[str], palette: NDArray[np.float64]
) -> None:
    """Write each class's name at the middle of its dots, or slightly off if another name is there."""
    from matplotlib.patheffects import withStroke

    low, high = axis.dataLim.min, axis.dataLim.max
    span = float(max(*(high - low), np.finfo(float).tiny))
    font = 15 if max(map(len, names)) <= 3 else 10
    taken: list[tuple[float, float, float, float]] = []
    height = 0.0038 * font
    for number, middle in middles.items():
        width = 0.0022 * font * max(len(names[number]), 1)
        x, y = (middle - low) / span
        rows = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]
        place = next((y + k * height for k in rows if _is_free(taken, x, y + k * height, width, height)), None)
        if place is None:
            continue
        taken.append((x, place, width, height))
        axis.text(
            middle[0], low[1] + place * span, names[number], color=palette[number] * [0.8, 0.8, 0.8, 1], fontsize=font,
            weight="bold", ha="center", va="center", zorder=3, parse_math=False,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip


def _is_free(taken: list[tuple[float, float, float, float]], x: float, y: float, width: float, height: float) -> bool:
    return all(
        abs(x - other[0]) > (width + other[2]) / 2 or abs(y - other[1]) > 0.95 * (height + other[3]) / 2
        for other in taken
    )


def draw_clusters(
    axis: Any, points: NDArray[np.float64], labels: NDArray[np.intp], centers: NDArray[np.float64], title: str
) -> None:
    """Draw points (m, 2), colored by cluster (labels (m,)); of many clusters the centers (k, 2), as crosses."""
    draw_points(axis, points, labels, [f"{j}" for j in range(len(centers))], title)
    if len(centers) > NAMED:
        axis.scatter(*centers.T, marker="+", s=30, color="0.1", linewidths=1.1, zorder=2.5)


def draw_fit(axis: Any, observed: NDArray[np.float64], predicted: NDArray[np.float64], title: str) -> None:
    """Draw a dot a row and target (m, t), and the line of a perfect fit; several targets in their own deviations."""
    single = observed.shape[1] == 1
    if not single:
        middle, scale = observed.mean(axis=0), observed.std(axis=0)
        scale = np.where(scale > 1e-12 * np.abs(middle), scale, np.maximum(np.abs(middle), 1.0))
        observed, predicted = (observed - middle) / scale, (predicted - middle) / scale
    low, high = float(min(observed.min(), predicted.min())), float(max(observed.max(), predicted.max()))
    room = max(0.03 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-12)
    ends = [low - room, high + room]
    axis.plot(ends, ends, color=GREY, lw=1, zorder=1)
    alpha = min(0.6, 250 / len(observed) + 0.15)
    for t in range(observed.shape[1]):
        axis.scatter(observed[:, t], predicted[:, t], s=10, alpha=alpha, color=f"C{t}", linewidths=0, zorder=2,
                     label=None if single else f"target {t}")  # fmt: skip
    axis.set_xlim(ends)
    axis.set_ylim(ends)
    axis.set_aspect("equal")
    if not single:
        for handle in legend(axis, markerscale=2, ncols=1 if observed.shape[1] < 5 else 2).legend_handles:
            handle.set_alpha(1)
    unit = "" if single else ", in standard deviations"
    tidy(axis, title, f"observed{unit}", f"predicted{unit}")

"""Panels of points, matrices, bars and curves; convergence.py has those of convergence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.figures import (
    GREY,
    WIDE,
    colours,
    count_y,
    counted,
    head,
    legend,
    log_y,
    name_ticks,
    note,
    thinned,
    tidy,
    whole_numbers,
    written,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# -- points -------------------------------------------------------------------------------------------------------------


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
    """Draw points (m, 2), colored by cluster (labels (m,)); where clusters are many, the centers (k, 2) too, as crosses."""
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


# -- matrices -----------------------------------------------------------------------------------------------------------


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
    """Draw K (m, m), ordered by class (codes (m,), -1 none); classes that the kernel separates appear as blocks."""
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


# -- bars ---------------------------------------------------------------------------------------------------------------


Numbers = NDArray[np.float64]


def draw_bars(axis: Axes, values: Numbers, title: str, x: str, y: str) -> None:
    """Draw a bar for each of values (k,), numbered from 0."""
    axis.bar(np.arange(len(values)), values, color=colours(len(values)), width=0.85)
    whole_numbers(axis.xaxis)
    axis.set_xlim(-0.7, len(values) - 0.3)
    if not values.any():
        axis.set_ylim(0, 1)
    tidy(axis, title, x, y)


def draw_histogram(
    axis: Any,
    groups: Iterable[tuple[Numbers, str, str]],
    bins: Numbers,
    title: str,
    x: str,
    y: str,
    *,
    marks: Iterable[tuple[float, str, str | None]] = (),
    loc: str = "best",
) -> None:
    """Draw the counts in bins of each (values, label, color); marks: vertical lines (place, dashes, label)."""
    for values, label, colour in groups:
        axis.hist(values, bins, color=colour, alpha=0.65, label=label)
    for place, dashes, text in marks:
        axis.axvline(place, color=GREY, ls=dashes, lw=1.2, label=text)
    count_y(axis)
    legend(axis, loc=loc)
    tidy(axis, title, x, y)


# -- curves -------------------------------------------------------------------------------------------------------------


def draw_sorted(
    axis: Axes,
    lines: Iterable[tuple[Numbers, str | None, str]],
    title: str,
    x: str = "number",
    y: str = "eigenvalue",
    *,
    floor: float = 0.0,
    none: str = "",
) -> None:
    """Draw sorted values, a line of dots for each (values, label, color), on a logarithmic axis.

    floor: least share of the last line's first value that is drawn; none: text where there are no values.
    """
    lines = [line for line in lines if len(line[0])]
    if not lines:
        note(axis, none, title)
        return
    least = floor * max(float(lines[-1][0][0]), np.finfo(float).tiny)
    for values, label, colour in lines:
        places = np.arange(1, len(values) + 1)
        axis.plot(places, np.maximum(values, least), "o-", ms=3.5, lw=1, color=colour, label=label)
    log_y(axis)
    whole_numbers(axis.xaxis)
    if any(label for _, label, _ in lines):
        legend(axis)
    tidy(axis, title, x, y)


def draw_eigenvalues(axis: Axes, values: Numbers, mark: float, label: str, title: str) -> None:
    """Draw eigenvalues (k,), largest first, and a line at `mark`; from 0 on where they differ little."""
    axis.plot(np.arange(1, len(values) + 1), np.maximum(values, 1e-6 * max(float(values[0]), 1e-300)), "o-", ms=4, lw=1)
    if values[0] > WIDE * values[-1]:
        log_y(axis)
    else:
        axis.set_ylim(bottom=0)
    axis.axvline(mark, color=GREY, ls="--", lw=1.1, label=label)
    axis.set_xlim(0, max(len(values), int(mark)) + 1)
    whole_numbers(axis.xaxis)
    legend(axis)
    tidy(axis, title, "number", "eigenvalue")


def draw_path(
    axis: Axes,
    x: Numbers,
    y: Numbers,
    title: str,
    names: tuple[str, str],
    *,
    labels: Sequence[str | None] = (),
    band: tuple[Numbers, Numbers] | None = None,
    band_label: str | None = None,
    marks: Iterable[tuple[float, str, str | None]] = (),
    scale: str = "any",
    kinds: Sequence[str] = (),
    ends: tuple[float, float] | None = None,
    **style: Any,
) -> None:
    """Draw curves y (k, t) along a logarithmic axis x (k,), within a band from low to high, (k, t) each.

    names: of the two axes. marks: vertical lines (place, dashes, label). kinds (k,): the kind of each place, which the markers of the
    first curve show. ends: of the x axis. scale: of y, "any", "from 0", or "wide": logarithmic where y spans a wide range, else from 0.
    """
    several = y.shape[1] > 1
    for t in range(y.shape[1]):
        axis.plot(x, y[:, t], **{"color": f"C{t}", "lw": 1.8, "label": labels[t] if labels else None, **style})
        if band is not None:
            low, high = (edge[:, t] for edge in band)
            axis.fill_between(x, low, high, color=f"C{t}", alpha=0.08 if several else 0.18, lw=0, label=band_label)
    for number, kind in enumerate(dict.fromkeys(kinds)):
        at = [one == kind for one in kinds]
        axis.plot(x[at], y[at, 0], "os^Dv"[number % 5], ms=5, color=f"C{number}", label=kind)
    axis.set_xscale("log")
    for place, dashes, label in marks:
        axis.axvline(place, color=GREY, ls=dashes, lw=1.2, label=label)
    if ends is not None:
        axis.set_xlim(ends)
    tidy(axis, title, *names)
    if scale == "wide" and y.max() > WIDE * y.min() > 0:
        log_y(axis)
    elif scale != "any":
        axis.set_ylim(bottom=0)
    if axis.get_legend_handles_labels()[0]:
        legend(axis, ncols=1 if y.shape[1] < 5 else 2)


FEW_POINTS = 20
"""Maximum number of points of a line for each to have a dot."""


def draw_lines(
    axis: Axes,
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str,
    names: tuple[str, str],
    logs: tuple[bool, bool],
    points: bool = False,
) -> None:
    """Draw curves (x, y) by label, each with its own x; dots where they have few points, dots alone for `points`.

    logs: whether the axes are logarithmic.
    """
    for label, (x, y) in curves.items():
        axis.plot(x, y, "." if points else "o-" if len(x) <= FEW_POINTS else "-", ms=4, lw=1.6, label=label)
    if logs[0]:
        axis.set_xscale("log")
    if logs[1]:
        axis.set_yscale("log")
    tidy(axis, title, *names)
    legend(axis)

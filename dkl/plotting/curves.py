"""Panels of curves: sorted values such as a spectrum, and values along a path of a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.axes import GREY, WIDE, legend, log_y, note, tidy, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = NDArray[np.float64]
FEW_POINTS = 20
"""Maximum number of points of a line for each to have a dot."""


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

    names: of the two axes; marks: vertical lines (place, dashes, label); kinds (k,): of the places, of which the first curve
    has a marker each; ends: of the x axis; scale: "any", "from 0", or "wide" for a
    logarithmic one where y spans a wide range, else from 0.
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

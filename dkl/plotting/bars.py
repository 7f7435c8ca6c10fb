"""Panels of bars: a value for each cluster, and histograms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.axes import GREY, colours, count_y, legend, tidy, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

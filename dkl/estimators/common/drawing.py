"""Tools for all learners' pictures: figures without pyplot, panels, tidy axes, names, colors, files.

A learner's picture is a dataclass of small arrays (`shown`), `draw(figure, shown)` with all panels and
`draw_one(axis, shown)` with the most informative one. matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.quality import Quality, proof_text

Shown = TypeVar("Shown")
Panel = Callable[[Any, Any], None]
"""Function panel(figure, spec) that draws into a place of the figure's grid."""

GREY = "0.35"
KINDS = ("png", "pdf", "svg")
LONGEST_NAME = 16
TALL = 100
"""Height of the highest bar above which a bar of one would not be seen."""
PANEL_SIZE = (5.8, 5.0)


def check_matplotlib(where: str | None = None) -> None:
    """Raise InputError where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise InputError("matplotlib is missing", where=where, remedy="pip install 'dkl[report]'")


def new_figure() -> Any:
    """Return an empty figure with its own canvas, which pyplot does not manage."""
    check_matplotlib()
    from dkl.estimators.common.figure import Picture

    return Picture()


def plot(
    ax: Any, make: Callable[[], Shown], draw: Callable[[Any, Shown], None], draw_one: Callable[[Any, Shown], None]
) -> Any:
    """Draw an estimator's `plot`: all panels of `make()` in a new figure, or the most informative in `ax`."""
    check_matplotlib("plot")
    if ax is None:
        figure = new_figure()
        draw(figure, make())
        return figure
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise InputError("not axes of matplotlib", where="ax", got=type(ax).__name__, wanted="Axes or None")
    draw_one(ax, make())
    return ax


def check_kind(path: Path) -> str:
    """Return the kind of picture of the path's suffix, PNG without one; InputError for an unknown one."""
    kind = path.suffix[1:].lower() or "png"
    if kind not in KINDS:
        wanted = ", ".join(f".{kind}" for kind in KINDS)
        raise InputError("a picture of an unknown kind", where=str(path), wanted=wanted)
    return kind


def save(figure: Any, path: str | Path) -> Path:
    """Write the figure as PNG, PDF or SVG by suffix: all or nothing, the same bytes every time."""
    path = Path(path)
    kind = check_kind(path)
    from dkl.estimators.common.figure import write

    partial = path.with_name(f".dkl-{os.getpid()}.partial")  # not longer for a long name
    try:
        write(figure, partial, kind)
        partial.chmod(0o600)  # it shows the data
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def grid(figure: Any, panels: Sequence[Panel], columns: int, title: str = "") -> None:
    """Size the figure for the panels, and draw them row by row."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure.set_size_inches(PANEL_SIZE[0] * columns, PANEL_SIZE[1] * rows + 0.4)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    places = figure.add_gridspec(rows, columns)
    for panel, place in zip(panels, places, strict=False):
        panel(figure, place)
    if title:
        figure.suptitle(title, fontsize=13, parse_math=False)


def panel(draw: Callable[..., None], *given: Any, **options: Any) -> Panel:
    """Return a panel of one pair of axes, drawn by draw(axis, ...)."""
    return lambda figure, place: draw(figure.add_subplot(place), *given, **options)


def tidy(axis: Any, title: str = "", x: str = "", y: str = "") -> None:
    """Style the axes: a light grid, no box, title and axis labels."""
    axis.set_axisbelow(True)
    axis.grid(alpha=0.25)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(colors=GREY)
    head(axis, title)
    if x:
        axis.set_xlabel(x, color=GREY)
    if y:
        axis.set_ylabel(y, color=GREY)


def head(axis: Any, title: str, pad: float | None = None) -> None:
    """Set the panel's title, as plain text, `pad` points above it."""
    if title:
        axis.set_title(title, fontsize=11, pad=pad, parse_math=False)


def legend(axis: Any, **options: Any) -> Any:
    """Draw the color legend where the axes are emptiest, half transparent over what is under it."""
    return axis.legend(**{"frameon": True, "framealpha": 0.75, "edgecolor": "none", "fontsize": 9, **options})


def log_y(axis: Any, room: float = 0.0) -> None:
    """Set a logarithmic axis, with numbers at powers of ten, and at 2 and 5 where it spans few.

    `room`: a share of it to be left free above, for a legend.
    """
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.set_ylim(top=high * (high / low) ** room)
    axis.yaxis.set_minor_formatter(NullFormatter())
    if high < 300 * low:
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))


def count_y(axis: Any) -> None:
    """Scale a histogram's count axis: logarithmic if bars of one would not be seen next to the highest."""
    high = axis.get_ylim()[1]
    if high > TALL:
        axis.set_yscale("log")
        axis.set_ylim(bottom=0.7, top=4 * high)  # room for the legend
    else:
        axis.set_ylim(top=1.25 * high)
        whole_numbers(axis.yaxis)


def whole_numbers(axis: Any) -> None:
    """Set ticks at whole numbers alone, of axis.xaxis or axis.yaxis."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=11, min_n_ticks=1))


def note(axis: Any, text: str, title: str = "") -> None:
    """Write text where there is nothing to draw."""
    head(axis, title)
    axis.set_axis_off()
    axis.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axis.transAxes, parse_math=False)


def colours(count: int) -> NDArray[np.float64]:
    """Return colors (count, 4), RGBA: up to twenty clearly different, more spread over the hues."""
    from matplotlib import colormaps

    if count <= 20:
        return np.asarray(colormaps["tab10" if count <= 10 else "tab20"](np.arange(count)))
    golden = 0.6180339887498949
    return np.asarray(colormaps["turbo"](0.04 + 0.92 * ((np.arange(count) * golden) % 1.0)))


def written(names: Sequence[str]) -> list[str]:
    """Return class names as drawn: short, on one line, and "no. 3" where the font lacks a letter.

    Long ones keep their head and tail, in which most differ.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    letters = get_font(findfont(FontProperties())).get_charmap()
    found = []
    for number, name in enumerate(names):
        text = " ".join(name.split())
        if len(text) > LONGEST_NAME:
            text = f"{text[:9]}…{text[-6:]}"
        found.append(text if text and all(ord(letter) in letters for letter in text) else f"no. {number}")
    return found


def name_ticks(axis: Any, which: str, places: Sequence[float], names: Sequence[str]) -> None:
    """Label the places on axis "x" or "y" by names, as `written`; slanted where they would overlap."""
    (axis.set_xticks if which == "x" else axis.set_yticks)(list(places))
    labels = (axis.set_xticklabels if which == "x" else axis.set_yticklabels)(list(names))
    slanted = which == "x" and sum(len(name) + 2 for name in names) > 48
    for label in labels:
        label.set_parse_math(False)
        label.set_fontsize(9 if len(names) <= 20 else 8)
        if slanted:
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    axis.tick_params(axis=which, length=0)


def thinned(count: int, most: int) -> NDArray[np.intp]:
    """Return numbers of at most `most` of `count` things, in equal steps from the first."""
    return np.arange(0, count, max(1, -(-count // most)))


def counted(number: int, what: str, plural: str | None = None) -> str:
    """Return a count with its noun: "1 pattern", "1,797 patterns"."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def gap_text(relative_gap: float, gap: float | None = None) -> str:
    """Return what is proven, for a title. gap: as `absolute_gap` returns it."""
    return proof_text(relative_gap, gap) if np.isfinite(relative_gap) else "no gap is proven"


def titled(quality: Quality | None, text: str) -> str:
    """Return a picture's title: first the quality, if any, on a separate line."""
    return text if quality is None else f"{quality.title}\n{text}"


def classes_of(labels: Sequence[Any] | NDArray) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return (class numbers (n,), names of the classes); unlabeled rows have number -1."""
    from dkl._pair_sources import label_codes

    labels = labels if isinstance(labels, list) else np.asarray(labels)
    codes = label_codes(labels)
    _, first = np.unique(codes, return_index=True)
    return codes, tuple(str(labels[place]) for place in first[np.unique(codes) >= 0])

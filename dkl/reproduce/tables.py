"""Markdown and pictures from an item's record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from scipy.stats import ttest_rel

from dkl.plotting.figures import PlotData, can_draw, figure_of, panel, save
from dkl.plotting.panels import draw_lines
from dkl.reproduce.item import Item, Record, RecordRow

LEVEL = 0.05
"""Level of the paired t-tests, the papers' 95 %."""


def line(cells: Iterable[object]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def grid(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def pair(figures: Sequence[float | None] | None, digits: int) -> str:
    """Return "mean ± deviation", without a deviation that is None."""
    if figures is None or figures[0] is None:
        return ""
    mean = f"{figures[0]:.{digits}f}"
    return mean if figures[1] is None else f"{mean} ± {figures[1]:.{digits}f}"


def markdown(item: Item, record: Record) -> str:
    """Return the page of a record: a row a case with the paper's figure, ours and the verdict, then how it was made."""
    rows = record["rows"]
    labels = list(rows[0]["labels"]) if rows else []
    more = list(dict.fromkeys(name for row in rows for name in row["more"]))
    best = comparable(item, rows)
    cells = [
        [
            *row["labels"].values(), pair(row["paper"], item.digits),
            pair((row["mean"], row["deviation"]), item.digits) + (" †" if row["key"] in best else ""), row["verdict"],
            len(row["values"]), *(_cell(row["more"].get(name, "")) for name in more), f"{row['cpu_seconds']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    quick = "**Quick: fewer draws and smaller sets than the paper's; not a result.** " if record["quick"] else ""
    tested = f" †: the best {item.tested} of its rows, or not worse by a paired t-test at 95 %." if best else ""
    versions = ", ".join(f"{name} {one}" for name, one in record["versions"].items() if one)
    return "\n".join([
        f"# {item.paper}, {item.place}: {item.asks}", "",
        f"{quick}{item.value[0].upper()}{item.value[1:]}, mean and standard deviation over the draws.{tested}", "",
        grid([*labels, "paper", "dkl", "verdict", "draws", *more, "CPU s"], cells), "",
        *([f"![{item.place}]({item.name}.png)", ""] if item.axes is not None else []),
        f"Settings: {item.settings}", "",
        f"Made by `{command(item, record)}`; dkl {record['dkl']}, commit {record['commit']}; {record['machine']}, one BLAS thread; "
        f"{versions}.", "",
    ])  # fmt: skip


def command(item: Item, record: Record) -> str:
    """Return the command that makes the record."""
    return f"dkl reproduce {item.name}" + " --quick" * record["quick"] + (
        f" --draws {record['draws']}" if record["draws"] else ""
    )  # fmt: skip


def comparable(item: Item, rows: list[RecordRow]) -> set[str]:
    """Return the keys of the rows that are the best of those which differ in `item.tested` alone, or not worse by a t-test."""
    if item.tested is None:
        return set()
    groups: dict[tuple[str, ...], list[RecordRow]] = {}
    for row in rows:
        groups.setdefault(tuple(v for name, v in row["labels"].items() if name != item.tested), []).append(row)
    found = set()
    for group in [group for group in groups.values() if len(group) > 1]:
        best = (max if item.better == "higher" else min)(group, key=lambda row: row["mean"])
        found |= {row["key"] for row in group if row is best or not _is_worse(row["values"], best["values"])}
    return found


def _is_worse(values: Sequence[float], best: Sequence[float]) -> bool:
    # A paired test needs the same draws.
    if len(values) != len(best) or len(best) < 2:
        return True
    # The test of equal values divides 0 by 0.
    if values == best:
        return False
    return bool(ttest_rel(values, best).pvalue < LEVEL)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw_figure(item: Item, record: Record, path: Path) -> None:
    """Draw a panel for each row with curves, in the paper's form; rows that share their first label share a panel."""
    if item.axes is None or not can_draw():
        return
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for row in record["rows"]:
        first, *others = row["labels"].values()
        for name, curve in row["curves"].items():
            panels.setdefault(first, {})[", ".join(dict.fromkeys([*others, name]))] = curve
    drawn = [panel(partial(draw_lines, curves=curves, title=title, names=(item.axes.x, item.axes.y),
                           logs=(item.axes.log_x, item.axes.log_y), points=item.axes.points))
             for title, curves in panels.items()]  # fmt: skip
    save(figure_of(PlotData(f"{item.paper}, {item.place}", drawn)), path)

"""Table that a sweep prints while it works: a row a point, a dash for what was not measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dkl.resources import format_bytes
from dkl.runs.sweep.request import SweepRequest, shown
from dkl.runs.sweep.results import Line

NONE = "-"
WIDEST = 19
"""Width of the longest outcome, stopped_by_callback."""


def number(value: Any, form: str = ".3g") -> str:
    """Return a number in few digits; a dash for None.

    >>> number(12345.6), number(0.0412), number(None)
    ('12,346', '0.0412', '-')
    """
    if value is None:
        return NONE
    return f"{value:,.0f}" if form == ".3g" and abs(value) >= 1000 else f"{value:{form}}"


def size(value: Any) -> str:
    """Return bytes as text; a dash for None."""
    return NONE if value is None else format_bytes(value)


def outcome(line: Line) -> str:
    """Return how a point ended: the run's outcome, or the exit code of a process that left none."""
    if line.get("outcome"):
        return str(line["outcome"])
    status = int(line["status"])
    return f"killed ({-status})" if status < 0 else f"exit {status}"


def peak(line: Line) -> int | None:
    """Return the most bytes that one process of a point has used."""
    return max((line[name] for name in ("peak_bytes", "worker_peak_bytes") if line.get(name)), default=None)


def part(name: str) -> Callable[[Line], str]:
    """Return a function of a line: a part of its point's seconds."""
    return lambda line: number((line.get("split") or {}).get(name))


COLUMNS: tuple[tuple[str, int, Callable[[Line], str]], ...] = (
    ("seconds", 9, lambda line: number(line.get("seconds"))),
    ("CPU s", 9, lambda line: number(line.get("cpu_seconds"))),
    ("steps", 8, lambda line: number(line.get("n_iter"), ",")),
    ("outcome", WIDEST, outcome),
    ("gap", 9, lambda line: number(line.get("relative_gap"), ".1e")),
    ("peak", 9, lambda line: size(peak(line))),
    ("disk", 9, lambda line: size(line.get("disk_bytes"))),
    ("compute", 9, part("compute")),
    ("comm. s", 9, part("communication")),
    ("disk s", 9, part("disk")),
    ("other s", 9, part("other")),
)


class SweepTable:
    """Rows of a request's points under one heading, each with the values that differ between them."""

    def __init__(self, request: SweepRequest) -> None:
        self.varied = {
            name: max(len(name), *(len(shown(value, name)) for value in values)) + 2
            for name, values in request.varied.items()
        }
        self.has_repeats = request.repeat > 1
        self.n_width = max(len(f"{n:,}") for n in request.n) + 2

    def head(self) -> str:
        """Return the columns' names."""
        cells = [f"{'n':>{self.n_width}}"]
        cells += [f"{name.replace('_', '-'):>{width}}" for name, width in self.varied.items()]
        cells += [f"{'repeat':>8}"] if self.has_repeats else []
        return "".join([*cells, *(f"{name:>{width + 1}}" for name, width, _ in COLUMNS)])

    def row(self, line: Line) -> str:
        """Return the row of a point, with its error below it, if it has one."""
        cells = [f"{line['n']:>{self.n_width},}"]
        cells += [f"{shown(line['varied'].get(name), name):>{width}}" for name, width in self.varied.items()]
        cells += [f"{line['repeat']:>8}"] if self.has_repeats else []
        cells += [f"{text(line):>{width + 1}}" for _, width, text in COLUMNS]
        error = f"\n{'':>{self.n_width}}  {line['error']}" if line.get("error") else ""
        return "".join(cells) + error

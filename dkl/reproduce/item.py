"""Form of a table or figure of a paper: its cases, the paper's own figures, and the verdict on ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np

from dkl.errors import InputError

Scalar = str | int | float
Published = tuple[float, float | None]
"""Mean and standard deviation as printed in a paper; None: it prints no deviation."""
Curve = tuple[Sequence[float], Sequence[float]]
"""x and y of a curve."""


class RecordRow(TypedDict):
    """A case as a record keeps it; a file that was read has lists in the place of tuples."""

    key: str
    labels: dict[str, str]
    paper: Published | None
    mean: float
    deviation: float | None
    values: list[float]
    verdict: str
    more: dict[str, Scalar]
    curves: dict[str, tuple[list[float], list[float]]]
    cpu_seconds: float


class Record(TypedDict):
    """Content of an item's JSON file: what was asked for, by what it was made, and the rows so far."""

    item: str
    quick: bool
    draws: int | None
    settings: str
    dkl: str
    commit: str | None
    machine: str
    versions: dict[str, str | None]
    rows: list[RecordRow]


@dataclass(frozen=True)
class Effort:
    """Options of a call. quick: fewer draws and smaller sets; draws: number of draws in place of the item's own."""

    quick: bool = False
    draws: int | None = None

    def count(self, full: int, quick: int = 2) -> int:
        """Return the number of draws."""
        return self.draws or (quick if self.quick else full)


@dataclass(frozen=True)
class Measured:
    """Result of a case: a value for each draw; `more` for the table; `curves` by label for the picture."""

    values: Sequence[float]
    more: Mapping[str, Scalar] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A row of a table or a panel of a figure.

    labels: by column, unique in their item; work: computes it; paper: what the paper prints for it; None: nothing.
    """

    labels: Mapping[str, str]
    work: Callable[[], Measured]
    paper: Published | None = None

    @property
    def key(self) -> str:
        """Return the labels in one text, by which the row is found again."""
        return " / ".join(self.labels.values())


@dataclass(frozen=True)
class Axes:
    """Axes of a figure's panels: names and scales. points: curves are clouds of points."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = True
    points: bool = False


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    name     as `dkl reproduce` takes it, paper first: "admm-table2"
    place    where it is printed: "table 2"
    asks     what it shows, in a line
    value    what is measured, with its unit
    cases    makes its cases; reads no data and computes nothing before a case's work is called
    sets     names of the data sets that are read; quick_sets: with --quick
    settings what was fixed, and how the rest was chosen; in the JSON and under the table
    better   "higher" or "lower"; "equal" for figures that can only agree
    draws    number of draws that the paper's means are of
    digits   decimals of the figures
    tested   column of labels whose entries are compared by paired t-tests over the draws, as the paper does
    own      label of the paper's own method, whose rows the page of all papers shows; None: all rows
    axes     of a figure; None for a table
    extras   packages that it needs beyond the core's, by the extra of dkl that brings each
    """

    name: str
    place: str
    asks: str
    value: str
    cases: Callable[[Effort], Sequence[Case]]
    sets: tuple[str, ...]
    quick_sets: tuple[str, ...]
    settings: str
    better: str = "lower"
    draws: int = 20
    digits: int = 2
    tested: str | None = None
    own: str | None = None
    axes: Axes | None = None
    extras: Mapping[str, str] = field(default_factory=dict)

    @property
    def paper(self) -> str:
        """Return the paper's short name."""
        return {"onk": "ONK", "slkl": "SLKL", "trin": "TRIN", "sqlp": "SQLP"}.get(self.name.split("-")[0], "KL-ADMM")

    @property
    def file(self) -> str:
        """Return the module of its cases, from the root of the repository."""
        made_by = getattr(self.cases, "func", self.cases)  # a partial has no module
        return made_by.__module__.replace(".", "/") + ".py"

    def needed(self, effort: Effort) -> tuple[str, ...]:
        """Return the data sets that a call reads."""
        return self.quick_sets if effort.quick else self.sets


CONIC = {"clarabel": "conic"}
"""Package and extra of an item that solves cone programs."""


def spread(values: Sequence[float]) -> Published:
    """Return (mean, standard deviation or None for a single value) of the draws."""
    found = np.asarray(values, dtype=float)
    # ddof=1: the deviation of the draws as a sample, as papers print it.
    return float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None


def verdict(item: Item, values: Sequence[float], paper: Published | None) -> str:
    """Compare the mean of `values` with the paper's: as good or better, within a standard error of the difference, or worse."""
    mean, deviation = spread(values)
    if paper is None or not np.isfinite(mean):
        return ""
    short = {"higher": paper[0] - mean, "lower": mean - paper[0], "equal": abs(mean - paper[0])}[item.better]
    # A paper's figure is rounded to its digits: less than half of the last one apart is no difference.
    unit = 10.0**-item.digits
    if short < unit / 2:
        return "equal" if item.better == "equal" else "as the paper or better"
    # Of a figure without a deviation only our own counts: the verdict is then stricter, not milder.
    error = np.sqrt((deviation or 0.0) ** 2 / len(values) + (paper[1] or 0.0) ** 2 / item.draws)
    if short <= error:
        return "within a standard error"
    return f"{'differs' if item.better == 'equal' else 'worse'} by {short:.{item.digits}f}"


def check_draws(draws: int | None) -> None:
    """Raise InputError for a number of draws below 1."""
    if draws is not None and draws < 1:
        raise InputError("not a number of draws", where="--draws", got=draws, wanted="an integer >= 1")

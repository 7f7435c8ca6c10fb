"""Picture of a learned kernel or metric: rows and spectrum before and after, and convergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.common import drawing
from dkl.estimators.common.convergence import draw_gaps
from dkl.estimators.common.drawing import GREY, classes_of, counted, gap_text, legend, log_y, panel, tidy, titled
from dkl.estimators.common.views import Plane, draw_view, shown_of_all
from dkl.quality import Quality

MOST_VALUES = 40
MOST_DECOMPOSED = 1000
"""Rows of a matrix whose eigenvalues are shown, or whose eigenvectors are axes."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class LogDetShown:
    """Data of the picture of a learned kernel or metric.

    before, after (m, 2): rows in a plane; codes (m,) of their classes, -1 none, and their names; spectrum
    (k,) of the prior and the learned kernel on n_spectrum of the n_matrix rows that constraints touch, or of W0 and W, descending;
    history; relative_gap.
    """

    before: Numbers
    after: Numbers
    codes: NDArray[np.intp]
    names: tuple[str, ...]
    prior_spectrum: Numbers
    spectrum: Numbers
    n: int
    what: str
    history: Sequence[dict[str, Any]] = field(repr=False)
    relative_gap: float
    quality: Quality | None = None
    path: Sequence[dict[str, Any]] = ()
    """Rows of a run's path, one a gamma: gamma, objective, error of nearest labeled neighbors or None."""
    n_spectrum: int = 0
    n_matrix: int = 0

    @classmethod
    def of(
        cls, before: Any, after: Any, labels: Any, prior: Numbers, learned: Numbers, n: int, **told: Any
    ) -> LogDetShown:
        """Build from rows (m, d) and (m, k) before and after, and the matrices before and after."""
        names: tuple[str, ...]
        codes, names = (np.full(len(before), -1), ()) if labels is None else classes_of(labels)
        first, second = (Plane.of(rows).project(rows) for rows in (before, after))
        one, other = (
            np.asarray(np.linalg.eigvalsh(matrix)[::-1][:MOST_VALUES], np.float64) for matrix in (prior, learned)
        )
        return cls(first, second, codes, names, one, other, n, n_spectrum=len(learned), **told)


def draw(figure: Any, shown: LogDetShown) -> None:
    """Draw all panels into an empty figure."""
    panels = [panel(draw_before, shown), panel(draw_one, shown), panel(draw_spectrum, shown)]
    numbers = {gamma: number for number, gamma in enumerate(dict.fromkeys(row.get("gamma") for row in shown.history))}
    panels.append(panel(draw_gaps, [{**row, "gamma": numbers[row.get("gamma")]} for row in shown.history], "gamma"))
    if len(shown.path) > 1:
        panels.append(panel(draw_path, shown))
        if all(row["error"] is not None for row in shown.path):
            panels.append(panel(draw_errors, shown))
    title = f"{counted(shown.n, 'row')}, {gap_text(shown.relative_gap)}"
    drawing.grid(figure, panels, 2, titled(shown.quality, title))


def draw_before(axis: Any, shown: LogDetShown) -> None:
    """Draw the rows as the prior sees them."""
    title = f"prior {shown.what}, first two principal components{shown_of_all(len(shown.before), shown.n)}"
    draw_view(axis, shown.before, shown.codes, shown.names, title)


def draw_one(axis: Any, shown: LogDetShown) -> None:
    """Draw the rows as the learned kernel or metric sees them."""
    title = f"learned {shown.what}, first two principal components{shown_of_all(len(shown.after), shown.n)}"
    draw_view(axis, shown.after, shown.codes, shown.names, title)


def draw_spectrum(axis: Any, shown: LogDetShown) -> None:
    """Draw the largest eigenvalues before and after."""
    for values, label, colour in ((shown.prior_spectrum, "prior", GREY), (shown.spectrum, "learned", "C0")):
        positive = np.maximum(values, 1e-12 * max(float(shown.spectrum[0]), np.finfo(float).tiny))
        axis.plot(np.arange(1, len(values) + 1), positive, "o-", ms=3.5, lw=1, color=colour, label=label)
    log_y(axis)
    legend(axis)
    title = f"largest eigenvalues of the {shown.what}{shown_of_all(shown.n_spectrum, shown.n_matrix)}"
    tidy(axis, title, "number", "eigenvalue")


def draw_path(axis: Any, shown: LogDetShown) -> None:
    """Draw the objective along the path of gamma, and by what steps each was solved."""
    _along(axis, shown, "objective", "C0")
    ways = [f"{row.get('method', '')} ({row['solver']})".strip() for row in shown.path]
    for number, way in enumerate(dict.fromkeys(ways)):
        rows = [row for row, one in zip(shown.path, ways, strict=True) if one == way]
        at = [row["gamma"] for row in rows], [row["objective"] for row in rows]
        axis.plot(*at, "os^Dv"[number % 5], ms=5, color=f"C{number}", label=way)
    legend(axis)
    tidy(axis, "along the path", "gamma", "objective")


def draw_errors(axis: Any, shown: LogDetShown) -> None:
    """Draw along the path the share of labeled rows whose nearest labeled neighbor has another class."""
    _along(axis, shown, "error", "C1")
    axis.set_ylim(bottom=0.0)
    tidy(axis, "nearest neighbors of another class", "gamma", "share of labeled rows")


def _along(axis: Any, shown: LogDetShown, name: str, colour: str) -> None:
    axis.plot(
        [row["gamma"] for row in shown.path], [row[name] for row in shown.path], "o-", ms=3.5, lw=1.6, color=colour
    )
    axis.set_xscale("log")

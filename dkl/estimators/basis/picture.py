"""Picture of a kernel in a smooth basis: rows before and after, Y's spectrum, convergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.common import drawing
from dkl.estimators.common.convergence import draw_gaps
from dkl.estimators.common.drawing import classes_of, counted, gap_text, log_y, panel, tidy, titled
from dkl.estimators.common.views import Plane, draw_view, shown_of_all
from dkl.quality import Quality

MOST_VALUES = 40
LEAST = 1e-16
"""Smallest drawn share of the largest eigenvalue: lower and zero values are drawn here."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class BasisShown:
    """Data of the picture of a learner in the basis of smooth eigenvectors.

    before, after (l, 2): rows in a plane; codes (l,) of their classes, -1 none, and their names; spectrum
    (k,) of Y, descending; history; relative_gap, and the one that was asked for; gap: as `absolute_gap` returns it; n rows were
    learned from.
    """

    before: Numbers
    after: Numbers
    codes: NDArray[np.intp]
    names: tuple[str, ...]
    spectrum: Numbers
    n: int
    tol: float
    history: Sequence[dict[str, Any]] = field(repr=False)
    relative_gap: float
    gap: float | None = None
    quality: Quality | None = None

    @classmethod
    def of(cls, before: Any, after: Any, labels: Any, Y: Numbers, **told: Any) -> BasisShown:
        """Return the picture's data from rows (l, d) before and (l, k) after, and Y (m, m)."""
        codes, names = (np.full(before.shape[0], -1), ()) if labels is None else classes_of(labels)
        first, second = (Plane.of(rows).project(rows) for rows in (before, after))
        spectrum = np.asarray(np.linalg.eigvalsh(Y)[::-1][:MOST_VALUES], np.float64)
        return cls(first, second, codes, names, spectrum, **told)


def draw(figure: Any, shown: BasisShown) -> None:
    """Draw all panels into an empty figure."""
    panels = [panel(draw_before, shown), panel(draw_one, shown), panel(draw_spectrum, shown)]
    panels.append(panel(draw_gaps, shown.history, "stage", shown.tol))
    title = titled(shown.quality, f"{counted(shown.n, 'row')}, {gap_text(shown.relative_gap, shown.gap)}")
    drawing.grid(figure, panels, 2, title)


def draw_before(axis: Any, shown: BasisShown) -> None:
    """Draw the rows as they were given."""
    draw_view(axis, shown.before, shown.codes, shown.names, _title(shown, "rows"))


def draw_one(axis: Any, shown: BasisShown) -> None:
    """Draw the rows as the kernel sees them."""
    draw_view(axis, shown.after, shown.codes, shown.names, _title(shown, "embedding"))


def _title(shown: BasisShown, what: str) -> str:
    return f"{what}, first two principal components{shown_of_all(len(shown.after), shown.n)}"


def draw_spectrum(axis: Any, shown: BasisShown) -> None:
    """Draw the largest eigenvalues of Y, which are the kernel's."""
    values = shown.spectrum
    shown_values = np.maximum(values, LEAST * max(float(values[0]), np.finfo(float).tiny))
    axis.plot(np.arange(1, len(values) + 1), shown_values, "o-", ms=3.5, lw=1, color="C0")
    log_y(axis)
    tidy(axis, "largest eigenvalues of the kernel", "number", "eigenvalue")

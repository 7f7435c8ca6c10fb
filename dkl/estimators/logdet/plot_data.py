"""Plot of a learned kernel or metric: rows and spectrum before and after, convergence, and a path of gamma."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.base.plot_rows import classes_of, largest_eigenvalues, of_all, rows_panel
from dkl.plotting.convergence import draw_gaps
from dkl.plotting.figures import GREY, Panel, PlotData, counted, gap_text, panel, titled
from dkl.plotting.panels import draw_path, draw_sorted
from dkl.solvers.watch import Result

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserLabels

MOST_DECOMPOSED = 1000
"""Rows of a matrix whose eigenvalues are shown, or whose eigenvectors are axes."""
Numbers = NDArray[np.float64]


def plot_data(
    before: Any,
    after: Any,
    labels: UserLabels,
    prior: Numbers,
    learned: Numbers,
    *,
    n: int,
    what: str,
    result: Result,
    relative_gap: float,
    n_matrix: int = 0,
    path: Sequence[dict[str, object]] = (),
) -> PlotData:
    """Return the plot of a learned kernel or metric.

    before, after (m, d), (m, k): rows, of n, with their labels; prior, learned: kernels on some of the n_matrix rows that
    constraints touch, or W0 and W; path: rows of a run, one a gamma: gamma, objective, error of nearest labeled neighbors or
    None, solver and method.
    """
    codes, names = classes_of(labels, len(before))
    below = of_all(len(before), n)
    main = rows_panel(after, codes, names, f"learned {what}", below)
    spectra = [(largest_eigenvalues(prior), "prior", GREY), (largest_eigenvalues(learned), "learned", "C0")]
    title = f"largest eigenvalues of the {what}{of_all(len(learned), n_matrix)}"
    numbers = {gamma: number for number, gamma in enumerate(dict.fromkeys(row.get("gamma") for row in result.history))}
    history = [{**row, "gamma": numbers[row.get("gamma")]} for row in result.history]
    panels = [
        rows_panel(before, codes, names, f"prior {what}", below),
        main,
        panel(draw_sorted, spectra, title, floor=1e-12),
        panel(draw_gaps, history, "gamma"),
        *(path_panels(path) if len(path) > 1 else []),
    ]
    title = f"{counted(n, 'row')}, {gap_text(relative_gap)}"
    return PlotData(titled(result.quality, title), panels, main, columns=2)


def path_panels(path: Sequence[dict[str, object]]) -> list[Panel]:
    """Return panels along a path of gamma: of the objective, with the steps that solved it, and of errors if known."""
    gammas, ways = (
        np.array([row["gamma"] for row in path]),
        [f"{row.get('method', '')} ({row['solver']})".strip() for row in path],
    )
    style: dict[str, object] = {"marker": "o", "ms": 3.5, "lw": 1.6}
    objective, errors = np.array([[row["objective"]] for row in path]), [[row["error"]] for row in path]
    names = "gamma", "objective"
    panels = [panel(draw_path, gammas, objective, "along the path", names, kinds=ways, **style)]
    if [None] not in errors:
        title, names = "nearest neighbors of another class", ("gamma", "share of labeled rows")
        panels.append(panel(draw_path, gammas, np.array(errors), title, names, scale="from 0", **style, color="C1"))
    return panels

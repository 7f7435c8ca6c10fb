"""Plot of a kernel in a smooth basis: rows before and after, Y's spectrum, convergence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkl.estimators.base.plot_rows import classes_of, labels_at, largest_eigenvalues, of_all, rows_panel, sampled
from dkl.estimators.base.validation import checked_rows
from dkl.plotting.axes import counted, gap_text, titled
from dkl.plotting.convergence import LEAST, draw_gaps
from dkl.plotting.curves import draw_sorted
from dkl.plotting.figures import PlotData, panel
from dkl.quality import absolute_gap

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.user_types import UserLabels, UserRows


def plot_data(learner: BaseEstimator, X: UserRows = None, y: UserLabels = None) -> PlotData:
    """Return the plot of a fitted learner: of the rows learned from, or of X (l, d), with labels y (l,)."""
    given = learner._rows if X is None else checked_rows(learner, X, reset=False)
    n, proven, result = int(given.shape[0]), learner.certificate_, learner.result_
    chosen = sampled(n)
    codes, names = classes_of(labels_at(y, n, chosen), len(chosen))
    below = of_all(len(chosen), n)
    main = rows_panel(learner._extended(given)[chosen], codes, names, "embedding", below)
    values = largest_eigenvalues(learner.basis_kernel_)
    panels = [
        rows_panel(given[chosen], codes, names, "rows", below),
        main,
        panel(draw_sorted, [(values, None, "C0")], "largest eigenvalues of the kernel", floor=LEAST),
        panel(draw_gaps, result.history, "stage", float(learner.tol)),
    ]
    gap = absolute_gap(proven.objective, proven.gap, proven.relative_gap)
    return PlotData(titled(result.quality, f"{counted(n, 'row')}, {gap_text(proven.relative_gap, gap)}"), panels, main)

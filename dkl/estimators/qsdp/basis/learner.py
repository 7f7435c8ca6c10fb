"""Estimator interface shared by the learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.estimators.base.parameters import ClientParameter
from dkl.estimators.base.plot_rows import classes_of, labels_at, largest_eigenvalues, of_all, rows_panel, sampled
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.qsdp.basis.fit import Basis
from dkl.plotting.axes import counted, gap_text, titled
from dkl.plotting.convergence import LEAST, draw_gaps
from dkl.plotting.curves import draw_sorted
from dkl.plotting.figures import PlotData, draw_plot, panel
from dkl.problems.qsdp.certificate import QSDPCertificate
from dkl.quality import absolute_gap
from dkl.resources import parse_bytes
from dkl.solvers.result import Result

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator
    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import CheckedRows, UserLabels, UserRows
    from dkl.plotting.figures import Axes

Matrix = NDArray[np.float64]


class BasisLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Base of the learners in the basis of smooth eigenvectors: fitted attributes, embedding of new rows."""

    n_basis: int | None
    tol: float
    memory_limit: int | str | None
    basis_: Matrix
    basis_kernel_: Matrix
    embedding_: Matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _keep(
        self,
        rows: CheckedRows,
        basis: Basis,
        Y: Matrix,
        embedding: Matrix,
        certificate: QSDPCertificate,
        result: Result,
    ) -> None:
        self._rows, self._basis = rows, basis
        self.basis_, self.basis_kernel_, self.embedding_ = basis.Q, Y, embedding
        self.certificate_, self.result_, self.n_iter_ = certificate, result, result.n_iter

    def transform(self, X: UserRows) -> Matrix:
        """Return coordinates (l, k) of the rows X (l, d).

        Those of unseen rows are the mean of their neighbors', weighted by similarity.
        """
        check_is_fitted(self)
        return self._extended(checked_rows(self, X, reset=False))

    def _extended(self, rows: CheckedRows) -> Matrix:
        """Return coordinates (l, k) of checked rows (l, d), standardized like those learned from."""
        return np.asarray(neighbor_means(rows, self._rows, self._basis.similarity) @ self.embedding_)

    def fit_transform(self, X: UserRows, y: UserLabels = None, **given: object) -> Matrix:
        """Fit, then return the coordinates of the same rows, `embedding_`."""
        return np.asarray(self.fit(X, y, **given).embedding_)

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the embedding: a new matplotlib Figure with all panels, or `ax` with the rows in the plane.

        X (l, d): rows to show in place of those that were learned from; y (l,): their labels, -1, None or NaN for none.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: plot_data(self, X, y))

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _limit(self) -> int | None:
        return parse_bytes(self.memory_limit)


# Plot of a kernel in a smooth basis: rows before and after, Y's spectrum, convergence.


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

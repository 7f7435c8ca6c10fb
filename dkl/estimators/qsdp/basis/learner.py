"""Estimator interface shared by the learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.memory_plan import note_idle_workers
from dkl.blocks.rows.row_sources import is_dask
from dkl.blocks.workers.dense_work import DenseWork
from dkl.estimators.base.mixins import ClientParameter, CoordinateKernel, lazily
from dkl.estimators.base.plot_rows import classes_of, labels_at, largest_eigenvalues, of_all, rows_panel, sampled
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.progress import warn_of
from dkl.estimators.base.settings import gathered
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.qsdp.basis.fit import BasisProblem, solve_basis
from dkl.estimators.qsdp.basis.plan import BasisSizes, place_basis, room_for_basis
from dkl.estimators.qsdp.settings import BasisSettings
from dkl.plotting.convergence import LEAST, draw_gaps
from dkl.plotting.figures import PlotData, counted, draw_plot, gap_text, panel, titled
from dkl.plotting.panels import draw_sorted
from dkl.problems.qsdp.certificate import QSDPCertificate
from dkl.problems.qsdp.linear import SDPCertificate
from dkl.quality import absolute_gap
from dkl.resources import parse_bytes
from dkl.solvers.watch import Result, Watch

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import CheckedRows, UserLabels, UserRows
    from dkl.estimators.qsdp.basis.hard import HardProblem, HardSolution
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.plotting.figures import Axes

Matrix = NDArray[np.float64]


class BasisLearner(CoordinateKernel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Base of the learners in the basis of smooth eigenvectors: fitted attributes, embedding of new rows."""

    SETTINGS: type[BasisSettings]
    n_basis: int | None
    n_jobs: int | None
    tol: float
    memory_limit: int | str | None
    basis_: Matrix
    basis_kernel_: Matrix
    embedding_: Matrix
    certificate_: QSDPCertificate | SDPCertificate

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Coordinates are of eigenvectors, float64 whatever the rows are.
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _solve(self, pose: Callable[..., BasisProblem], rows: CheckedRows, sizes: BasisSizes, watch: Watch) -> None:
        """Solve the problem that `pose` makes of checked rows, once its plan fits in memory, and keep the solution."""
        settings = gathered(self.SETTINGS, self, memory_limit=parse_bytes(self.memory_limit))
        session = self._session()
        plan, place = place_basis(sizes, settings, session)
        note_idle_workers(plan)
        posed = pose(sizes.m, settings, session, room=room_for_basis(sizes, settings, session))
        # The place is chosen again where its worker is lost: others may have come, or have less room by then.
        work = DenseWork(session, posed, place, lambda: place_basis(sizes, settings, session)[1])
        found = posed.with_quality(solve_basis(work, settings, watch).planned(plan.as_dict()), rows, watch)
        # To the line of the user's `fit`: from here by `fit` of the learner.
        warn_of(found.result, stacklevel=3)
        self._keep(rows, posed, found.Y, found.embedding, found.solution.certificate, found.result)

    def _adopt(self, posed: Any) -> None:
        """Keep what a learner shows of its problem, in addition to the solution."""

    def _keep(
        self,
        rows: CheckedRows,
        posed: BasisProblem,
        Y: Matrix,
        embedding: Matrix,
        proof: QSDPCertificate,
        result: Result,
    ) -> None:
        self._rows, self._basis = rows, posed.basis
        self.basis_, self.basis_kernel_, self.embedding_ = posed.basis.Q, Y, embedding
        self.certificate_, self.result_, self.n_iter_ = proof, result, result.n_iter
        self._adopt(posed)

    def _solve_hard(
        self, pose: Callable[..., HardProblem], rows: CheckedRows, plan: Callable[..., HardPlan], watch: Watch
    ) -> None:
        """Solve under the hard constraints that `pose` makes of checked rows, once `plan` fits in memory, and keep the solution."""
        settings = gathered(self.SETTINGS, self, memory_limit=parse_bytes(self.memory_limit))
        session = self._session()
        planned = plan(settings, session)
        posed = pose(settings, session)
        found = posed.with_quality(posed.solve(rows, planned, watch), rows, planned, watch)
        warn_of(found.result, stacklevel=3)
        self._keep_hard(rows, found, posed)

    def _keep_hard(self, rows: CheckedRows, found: HardSolution, posed: HardProblem) -> None:
        """Keep the kernel of hard constraints in the basis of its eigenvectors."""
        self._rows, self._basis = rows, found.basis
        self.basis_, self.basis_kernel_, self.embedding_ = found.basis.Q, found.Y, found.embedding
        self.certificate_, self.result_, self.n_iter_ = found.certificate, found.result, found.result.n_iter
        self._adopt(posed)

    def transform(self, X: UserRows) -> Matrix:
        """Return coordinates (l, k) of the rows X (l, d).

        Those of unseen rows are the mean of their neighbors', weighted by similarity. For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
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

"""A fit of K = Q Y Q': the basis, the problem in Y, its solution and what is kept of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.graph import Graph
from dkl.errors import InputError
from dkl.estimators.common import drawing
from dkl.estimators.common.client_parameter import ClientParameter
from dkl.estimators.common.outcomes import warn_of
from dkl.estimators.common.prior_kernels import neighbor_means
from dkl.estimators.common.size_guard import check_size
from dkl.estimators.common.validation import checked_rows
from dkl.estimators.common.views import chosen_rows
from dkl.estimators.laplacian import picture
from dkl.estimators.laplacian.settings import BasisSettings
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.quadratic_sdp import QuadraticSDP
from dkl.resources import parse_bytes, peak_rss
from dkl.solvers.qsdp_conic import solve_conic
from dkl.solvers.qsdp_face import FACE
from dkl.solvers.qsdp_low_rank import solve_low_rank
from dkl.solvers.qsdp_newton import JOINT
from dkl.solvers.qsdp_problem import QSDPSolution
from dkl.solvers.result import Result, remedies
from dkl.solvers.watch import Watch

Matrix = NDArray[np.float64]
S = TypeVar("S", bound=BasisSettings)
MOST_BASIS = 30
"""Eigenvectors where none are asked for."""
ROWS_EACH = 4
"""Rows for each of these at least: smooth functions that could tell any row from its neighbours would be none."""
RANK = 1e-12
"""Of Y's largest eigenvalue: what is below is rounding."""
BASES = 6
"""Arrays (n, m) alive at the peak: Q, Q in scaled coordinates, its products, and the eigenvectors' guards."""
TERMS, SYSTEMS = 3, 4
"""Arrays (terms, m), and matrices of the equations that are factorized, alive at the peak."""
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled='rounding ends all progress: loosen tol, or take solver="low-rank"',
    numerical_error="a value stopped being finite: scale the rows",
)


@dataclass(frozen=True)
class Solved:
    """Y (m, m), its eigenvectors by falling eigenvalue, the solution and what happened."""

    Y: Matrix
    axes: Matrix
    solution: QSDPSolution
    result: Result


def basis_size(n_basis: int | None, n: int) -> int:
    """m; InputError where the graph of n rows has no m smooth eigenvectors beside the first."""
    if n_basis is not None and n_basis >= n:
        raise InputError(
            "more eigenvectors than the graph has", where="n_basis", got=n_basis, wanted=f"at most {n - 1} of {n} rows"
        )
    return min(MOST_BASIS, max(1, n // ROWS_EACH)) if n_basis is None else int(n_basis)


def check_room(n: int, m: int, terms: int, limit: int | None) -> None:
    """MemoryBudgetError where bases and Newton's equations do not fit; terms: distances, or pairs and rows."""
    basis, step = BASES * 8 * n * m, 8 * (TERMS * terms * m + SYSTEMS * (JOINT + FACE**2) ** 2)
    items = {f"the basis of {m:,} eigenvectors": basis, "a Newton step": step}
    check_size(items, limit, "take a smaller n_basis")


def solved(problem: QuadraticSDP, settings: BasisSettings, watch: Watch) -> Solved:
    """Y by the solver that is asked for; warns where it did not converge."""
    start = time.perf_counter()
    options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "watch": watch.stage("solve")}
    with one_blas_thread():  # the same bits on any machine; and matrices this small take several far longer
        if settings.solver == "low-rank":
            found = solve_low_rank(problem, **options)
        else:
            found = solve_conic(problem, settings.solver, memory_limit=settings.memory_limit, **options)
    seconds = time.perf_counter() - start
    result = Result(
        found.outcome, found.n_iter, watch.history, {"solve": seconds, "total": seconds}, peak_rss(),
        remedy=REMEDIES[found.outcome], proven=float(found.certificate.relative_gap),
    )  # fmt: skip
    warn_of(result, stacklevel=3)
    with one_blas_thread():
        Y = found.factor @ found.factor.T
        values, vectors = np.linalg.eigh(0.5 * (Y + Y.T))
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > RANK * max(float(values[0]), 0.0)
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(Y))]
    axes = (vectors * np.where(largest < 0, -1.0, 1.0))[:, kept] * np.sqrt(values[kept])
    return Solved(0.5 * (Y + Y.T), axes, found, result)


class BasisLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """What both learners keep, and how unseen rows are shown."""

    n_basis: int | None
    tol: float
    memory_limit: int | str | None
    basis_: Matrix
    basis_kernel_: Matrix
    embedding_: Matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _keep(self, rows: Any, graph: Graph, Q: Matrix, found: Solved, axes: Matrix) -> None:
        self._rows, self._graph, self._axes = rows, graph, axes
        with one_blas_thread():
            self.basis_, self.basis_kernel_, self.embedding_ = Q, found.Y, Q @ axes
        self.certificate_, self.result_, self.n_iter_ = found.solution.certificate, found.result, found.solution.n_iter

    def transform(self, X: Any) -> Matrix:
        """(l, k) coordinates of the rows X (l, d): of unseen ones the mean of those of their neighbours, weighted by similarity."""
        check_is_fitted(self)
        given = checked_rows(self, X, reset=False)
        return np.asarray(neighbor_means(given, self._rows, self._graph) @ self.embedding_)

    def fit_transform(self, X: Any, y: Any = None, **given: Any) -> Matrix:
        """`fit`, then the coordinates of the same rows, `embedding_`."""
        return np.asarray(self.fit(X, y, **given).embedding_)

    def plot(self, ax: Any = None, *, X: Any = None, y: Any = None) -> Any:
        """A picture of the embedding: a new matplotlib Figure with all panels, or `ax` with the rows in two dimensions.

        X (l, d): rows to show in place of those that were learned from; y (l,): their labels, -1 (None among objects) for none.
        """
        check_is_fitted(self)
        return drawing.plot(ax, lambda: self._shown(X, y), picture.draw, picture.draw_one)

    def _shown(self, X: Any, y: Any) -> picture.LaplacianShown:
        given = self._rows if X is None else checked_rows(self, X, reset=False)
        n = int(given.shape[0])
        chosen, labels = chosen_rows(n, y)
        return picture.LaplacianShown.of(
            given[chosen], self.transform(given)[chosen], labels, self.basis_kernel_, n=n, tol=float(self.tol),
            history=self.result_.history, relative_gap=self.certificate_.relative_gap,
        )  # fmt: skip

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _limit(self) -> int | None:
        return parse_bytes(self.memory_limit)

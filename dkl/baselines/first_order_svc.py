"""The optimal neighborhood kernel's machine by the methods that Liu et al. 2009 set theirs against: cuts alone, and subgradients.

The projected subgradient method, on the machine's problem (7) with the feasible set P,

    alpha <- the projection of alpha - s_k g / |g| onto P,    s_k = R / sqrt(k),    R = max over P of |alpha|

is of N. Shor, Minimization methods for non-differentiable functions, Springer 1985; A. Nemirovski, Efficient methods in convex
programming, 1994. It takes nothing of the objective f but gradients g, as of one that is not smooth: of N > 1 points the best f is at
most R L (1 + ln N / 2) / sqrt(N) above the least, |g| <= L, as no point of P is farther than R from the start, 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.kernels.kernel_checks import check_psd, check_square
from dkl.blocks.kernels.kernel_operator import MemoryKernel
from dkl.blocks.memory_plan import check_size
from dkl.blocks.rows.predictions import predict_block, rows_to_predict
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource, is_dask, row_source
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.classes import checked_labels
from dkl.estimators.base.kernel_width import width_of
from dkl.estimators.base.mixins import KernelParameter, lazily
from dkl.estimators.base.rules import (
    DICTIONARY,
    KERNEL,
    KERNEL_FUNCTION,
    Either,
    Integer,
    Real,
    Size,
    Word,
    check_kernel_params,
)
from dkl.estimators.base.settings import IN_ALL, InPython, Settings, Standardize, check_parameters
from dkl.estimators.base.side_information import given_labels
from dkl.estimators.base.validation import box_bounds, checked_weights, given_rows, refuse_large_bounds
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.kernels.packed_symmetric import packed_bytes
from dkl.linalg.svm_dual import project
from dkl.problems.svm.problem import NeighborhoodSVM, largest_square, rho_of
from dkl.resources import one_blas_thread, parse_bytes
from dkl.solvers.svm.interface import SVMSolution, TwoClasses, machines, record_point
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.watch import Watch, verdict

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLabels, UserRows, UserSeed, UserWeights


Matrix = NDArray[np.float64]
CUTS = 300
"""Cuts whose gradients and points the memory is planned for: Kelley's method takes more than it is worth beyond."""


@dataclass(frozen=True)
class FirstOrderSVCSettings(Settings):
    """Settings of the machine, as `dkl.OptimalNeighborhoodSVC` has them, and which method solves it."""

    C: Annotated[float, Real(above=0), "Bound of the coefficients, as in SVC."] = 1.0
    rho: Annotated[float | str, Either(Real(above=0), Word("scale")), "Weight of the distance to the kernel."] = "scale"
    kernel: Annotated[Any, KERNEL, "As scikit-learn calls it.", InPython(Either(KERNEL, KERNEL_FUNCTION))] = "rbf"
    gamma: Annotated[float | str, Either(Real(above=0), Word("scale", "auto")), "Of the kernel."] = "scale"
    degree: Annotated[float, Real(least=0), "Of the polynomial kernel."] = 3
    coef0: Annotated[float, Real(), "Of the polynomial and sigmoid kernels."] = 0.0
    standardize: Standardize = "auto"
    solver: Annotated[str, Word("kelley", "subgradient"), "How machines are solved."] = "kelley"
    tol: Annotated[float, Real(least=0), "Relative gap to end at."] = 1e-3
    max_iter: Annotated[int, Integer(1), "Most cuts, or steps, of a machine."] = 1000
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = {"kernel_params": (None, DICTIONARY), **IN_ALL}


class FirstOrderSVC(ClassifierMixin, KernelParameter):
    """The machine of `dkl.OptimalNeighborhoodSVC`, by Kelley's cutting planes or by projected subgradients.

        minimize over 0 <= alpha <= C, y'alpha = 0    -2 e'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)

    "kelley": the next alpha is the minimizer over the box of the largest of all tangents so far, a linear program. "subgradient": a
    step of length R / sqrt(k) against the gradient, projected onto the box, R the largest |alpha| in it. Liu et al. 2009 set their
    level method against both. One class against the rest where there are more than two. In memory, for some thousand rows.

    Parameters
    ----------
    C, rho, kernel, gamma, degree, coef0, kernel_params, standardize
        As in `dkl.OptimalNeighborhoodSVC`, of a single kernel.
    solver : "kelley" or "subgradient"
        The method.
    tol, max_iter
        Relative duality gap to end at; most cuts or steps of a machine.
    memory_limit, client, n_jobs, random_state
        Bytes this process may use; where rows are predicted; threads; not used, as nothing is drawn.

    Attributes
    ----------
    classes_ : class labels
    support_ : row numbers of the support vectors, support_vectors_ : their rows
    dual_coef_ : (machines, n_support) y alpha, intercept_, rho_ : (machines,)
    objective_, duality_gap_, relative_gap_, n_iter_ : (machines,)
    history_ : of each machine, rows of iteration, objective and relative gap
    scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.OptimalNeighborhoodSVC : The same machine by faster methods, and by the paper's two.
    sklearn.svm.SVC : The machine as rho grows.

    References
    ----------
    J. E. Kelley, The cutting-plane method for solving convex programs, J. SIAM 8, 703-712, 1960.
    N. Z. Shor, Minimization methods for non-differentiable functions, Springer, 1985.
    J. Liu, J. Chen, S. Chen, J. Ye, Learning the optimal neighborhood kernel for classification, IJCAI 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import FirstOrderSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FirstOrderSVC(tol=0.1, n_jobs=1).fit(X[:100:2], y[:100:2])
    >>> bool(model.score(X[1:100:2], y[1:100:2]) > 0.9 and model.relative_gap_.max() < 0.1)
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        rho: float | str = "scale",
        *,
        kernel: UserKernel = "rbf",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        solver: str = "kelley",
        tol: float = 1e-3,
        max_iter: int = 1000,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.C = C
        self.rho = rho
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.standardize = standardize
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: UserRows, y: UserLabels, sample_weight: UserWeights = None) -> FirstOrderSVC:
        """Learn from rows X (n, d) and class labels y (n,).

        Warns with ConvergenceWarning where a relative gap is above `tol` at the end.

        Parameters
        ----------
        X : (n, d) rows, or a kernel matrix (n, n)
        y : (n,) class labels
        sample_weight : (n,) numbers >= 0, optional

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows, labels or weights that are not valid, before any work.
        MemoryBudgetError
            For a kernel matrix that does not fit in `memory_limit`, before it is computed.
        """
        check_parameters(self, FirstOrderSVCSettings)
        check_kernel_params(self.kernel, self.kernel_params)
        source = row_source(given_rows(self, X, reset=True))
        self.classes_, numbers = checked_labels(given_labels(y), source.n, type(self).__name__)
        bounds = box_bounds(self.C, None, self.classes_, numbers, checked_weights(sample_weight, source.n))[0]
        refuse_large_bounds(bounds, 1.0)
        if self._is_precomputed:
            check_square(source.n, self.n_features_in_)
        self._check_size(source.n)
        gamma = width_of(self.kernel, self.gamma, source)
        params, is_function = dict(self.kernel_params or {}), callable(self.kernel)
        self._kernel = Kernel(self.kernel, gamma, self.degree, self.coef0, params, is_function)
        with one_blas_thread():
            K = MemoryKernel.of(self._kernel, source, np.float64, Session(None, threads=self.n_jobs).n_slots)
            if self._is_precomputed:
                check_psd(K.times, K.diagonal())
            # One against the rest, as Liu et al. have it: one kernel matrix serves all machines.
            pairs = machines(numbers, len(self.classes_), "ovr")
            found = [self._solve(K, pair, bounds) for pair in pairs]
        self._keep(source, pairs, bounds, found)
        worst = float(self.relative_gap_.max())
        if not worst <= self.tol:
            text = f"the relative gap is {worst:.3g}, above tol={self.tol:g}: raise max_iter or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def decision_function(self, X: UserRows) -> Matrix:
        """Return decision values (m,) for two classes, positive for the second; else (m, classes); for X of Dask, a dask array."""
        check_is_fitted(self)
        if is_dask(X):
            count = len(self.classes_)
            return lazily(self, "decision_function", X, np.empty(0 if count == 2 else (0, count)))
        rows = rows_to_predict(given_rows(self, X, reset=False), self._session(), self.memory_limit)
        points = self.support_ if self._is_precomputed else self.support_vectors_
        parts = rows.map(predict_block, self._kernel, points, self.dual_coef_, self.intercept_)
        found = np.concatenate(parts)
        return found[:, 0] if len(self.classes_) == 2 else found

    def predict(self, X: UserRows) -> NDArray[Any]:
        """Return class labels (m,), of the largest decision values; for X of Dask, a dask array."""
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "predict", X, self.classes_[:0])
        found = self.decision_function(X)
        numbers = (found > 0).astype(np.intp) if found.ndim == 1 else found.argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    # -- parts of fit -------------------------------------------------------------------------------------------------

    def _check_size(self, n: int) -> None:
        """Raise MemoryBudgetError where the kernel matrix, and the cuts, do not fit."""
        items = {f"the kernel matrix of {n:,} rows": packed_bytes(n, np.float64)}
        if self.solver == "kelley":
            items["the cuts, and their linear program"] = 6 * 8 * n * min(self.max_iter, CUTS)
        remedy = "learn from fewer rows, or by dkl.OptimalNeighborhoodSVC"
        check_size(items, parse_bytes(self.memory_limit), remedy)

    def _solve(self, K: MemoryKernel, pair: TwoClasses, bounds: NDArray[np.float64]) -> SVMSolution:
        """Solve a machine; rows of weight 0 are left out."""
        rows = np.flatnonzero(bounds > 0)
        y, C = np.ascontiguousarray(pair.y[rows]), np.ascontiguousarray(bounds[rows])
        if not ((y > 0).any() and (y < 0).any()):
            raise InputError("all samples of a class have weight zero", where="sample_weight", wanted="two classes")
        problem = NeighborhoodSVM(K.part(rows), y, C, rho_of(self.rho, C, y))
        if self.solver == "kelley":
            # At tau = 0 the level is the model's least value, whose minimizer over the box is Kelley's point.
            return LevelMethod(self.tol, self.max_iter, tau=0.0).solve(problem)
        return ProjectedSubgradient(self.tol, self.max_iter).solve(problem)

    def _keep(
        self, source: RowSource, pairs: list[TwoClasses], bounds: NDArray[np.float64], found: list[SVMSolution]
    ) -> None:
        """Set the fitted attributes."""
        rows, points = np.flatnonzero(bounds > 0), [one.point for one in found]
        coefficients = np.zeros((len(found), source.n))
        coefficients[:, rows] = [pair.y[rows] * point.alpha for pair, point in zip(pairs, points, strict=True)]
        self.support_ = np.flatnonzero((coefficients != 0).any(axis=0))
        if not self._is_precomputed:
            self.support_vectors_ = RowBlocks(source, Session(None, threads=1), once=True).take(self.support_)
        self.dual_coef_ = np.ascontiguousarray(coefficients[:, self.support_])
        self.intercept_ = np.array([point.intercept for point in points])
        self.objective_ = np.array([point.objective for point in points])
        self.duality_gap_ = np.array([point.gap for point in points])
        self.relative_gap_ = np.array([point.relative_gap for point in points])
        self.rho_ = np.array([rho_of(self.rho, bounds[rows], pair.y[rows]) for pair in pairs])
        self.n_iter_ = np.array([one.n_iter for one in found])
        self.history_ = [one.history for one in found]


@dataclass(frozen=True)
class ProjectedSubgradient:
    """Solve to a relative gap of `tol` in at most `max_iter` steps from zero; a row a step, of the best point so far."""

    tol: float = 1e-6
    max_iter: int = 10_000

    def solve(self, problem: NeighborhoodSVM, *, watch: Watch | None = None) -> SVMSolution:
        """Return the point of the least objective, with the best lower bound of any point that was met."""
        watch, shift = watch or Watch(), 0.0
        asked, problem = problem, problem.in_reach()  # beyond it P is wider than any alpha better than 0
        radius = float(np.sqrt(largest_square(problem.C, problem.y)))
        best = point = problem.zero()
        lower = point.objective - point.gap
        for step in range(self.max_iter + 1):
            lower = max(lower, point.objective - point.gap)
            if point.objective <= best.objective:
                best = point
            # Bounds of all points count, the objective of the best alone: a step may raise the objective and still prove more.
            best = best.with_bound(max(best.objective - lower, 0.0), best.intercept)
            stop_reason = record_point(watch, step, step, best)
            solved, at_limit = best.relative_gap <= self.tol, step >= self.max_iter
            outcome = verdict(stop_reason, solved=solved, at_limit=at_limit)
            if outcome is not None:
                best = best.with_bound(best.gap, asked.bound(best.gradient, best.alpha)[1])
                return SVMSolution(best, step, step, outcome, watch.history)
            length = radius / np.sqrt(step + 1) / float(np.linalg.norm(point.gradient))
            # `shift`, the multiplier of y'alpha = 0, is where the next projection starts its search.
            alpha, shift = project(point.alpha - length * point.gradient, problem.y, problem.C, shift)
            point = problem.at(alpha)
        raise AssertionError(step)

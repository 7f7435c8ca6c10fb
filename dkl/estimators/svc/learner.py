"""`OptimalNeighborhoodSVC`: a support vector machine that learns its kernel in the neighbourhood of a given one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.common.kernel_parameter import KernelParameter
from dkl.estimators.common.parameters import SVC_PARAMETERS, check_values
from dkl.estimators.common.progress import stage_callbacks
from dkl.estimators.common.sample_weights import box_bounds, checked_weights
from dkl.estimators.common.validation import given_rows
from dkl.estimators.svc.decisions import Machines, Scheme
from dkl.estimators.svc.fit import FittedMachine, Keeper, Step, SVCSettings, fit_machines, result_of, warn_of
from dkl.estimators.svc.path import Grid, SVCPath
from dkl.linalg.kernel_columns import Kernel
from dkl.resources import parse_bytes

WITH_GAMMA = ("rbf", "poly", "polynomial", "sigmoid", "laplacian")


class OptimalNeighborhoodSVC(ClassifierMixin, KernelParameter):
    """Support vector classification with the optimal neighbourhood kernel (ONK).

    Learns G near the kernel matrix K together with the machine:

        min over G psd, max over 0 <= alpha <= C, y'alpha = 0:  2 e'alpha - alpha'Y G Y alpha + rho |G - K|_F^2

    (Liu, Chen, Chen, Ye, IJCAI 2009, (3)). G = K + (Y alpha)(Y alpha)' / (2 rho); as rho grows this becomes SVC.

    Parameters
    ----------
    C : float
        The box of the dual, as in SVC; times class and sample weights. A row given twice is not quite one of weight 2:
        |G - K| counts both.
    rho : float
        Weight of the distance between G and K: the smaller, the further G may go.
    kernel, gamma, degree, coef0, kernel_params
        As in SVC and `sklearn.metrics.pairwise.pairwise_kernels`; "precomputed": X is (n, n), and (m, n) to predict. A
        list of kernels (names, functions, or dictionaries of `kernel` with parameters of its own) is combined: their
        weights are learned together with the machine, and each must be positive semidefinite. A single one of your own,
        or "sigmoid", is not checked: where it is indefinite the gap proves nothing.
    solver : "accelerated", "gradient" or "level"
        Accelerated projected gradient with Newton steps on the face that it ends on; or the paper's Algorithms 2 and 1,
        the latter for up to some thousand rows.
    multi_class : "ovo" or "ovr"
        One machine a pair of classes, as SVC, or one a class against the rest.
    decision_function_shape : "ovr" or "ovo"
        Of one-against-one machines, as in SVC.
    class_weight : None, "balanced" or dict
    tol, max_iter
        Relative duality gap; gradient steps of a machine.
    dtype : "float64" or "float32"
        Of the kernel matrix. The gap is always told in double.
    memory_limit : int, str or None
        Bytes a process may use. Of a single machine only the columns at the support are made, and K of the rows that
        count is held. Where many products are to come (several machines of all rows, `path()`, other solvers, a kernel
        function of your own) K is held whole; one that does not fit is kept in `work_dir`, or made anew.
    work_dir : str, path or None
        A folder for kernel matrices while fit runs; workers must see it under the same name.
    client : distributed.Client or None
        Where products are made that do not fit here. None finds the current client, else uses threads.
    n_jobs, random_state, callbacks, verbose

    Attributes
    ----------
    classes_, class_weight_
    support_ : row numbers of the support vectors, support_vectors_ : their rows
    kernel_weights_ : (machines, kernels) how much of each kernel there is in K; 1 for a single one
    dual_coef_ : (machines, n_support) y alpha, intercept_ : (machines,)
    objective_, duality_gap_, relative_gap_ : (machines,)
    result_, n_iter_, n_features_in_
    """

    def __init__(
        self,
        C: float = 1.0,
        rho: float = 100.0,
        *,
        kernel: Any = "rbf",
        gamma: float | str = "scale",
        degree: float = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        solver: str = "accelerated",
        multi_class: str = "ovo",
        decision_function_shape: str = "ovr",
        class_weight: Any = None,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        dtype: str = "float64",
        memory_limit: int | str | None = None,
        work_dir: Any = None,
        client: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        callbacks: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.rho = rho
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.solver = solver
        self.multi_class = multi_class
        self.decision_function_shape = decision_function_shape
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.work_dir = work_dir
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OptimalNeighborhoodSVC:
        """Learn from rows X (n, d) and class labels y (n,)."""
        return self._fit(X, y, sample_weight)

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, session: Session | None = None, keeper: Keeper | None = None
    ) -> OptimalNeighborhoodSVC:
        check_values(self, SVC_PARAMETERS)
        steps = [Step(1.0, float(self.rho))]
        source, (found,), seconds, plan = self._run(X, y, sample_weight, self.C, steps, session, keeper)
        warn_of(found)
        self._keep(source, found)
        self.result_ = result_of(found, seconds, plan)
        self.n_iter_ = self.result_.n_iter
        return self

    def path(self, X: Any, y: Any, Cs: Any, rhos: Any, *, sample_weight: Any = None) -> SVCPath:
        """The models at every C and rho of a grid, from one kernel matrix, each begun at its neighbour's solution.

        The estimator's own C and rho play no part, and what was fitted stays as it is.
        """
        check_values(self, SVC_PARAMETERS)
        grid = Grid.of(Cs, rhos)
        model = copy.copy(self)
        source, found, seconds, plan = model._run(X, y, sample_weight, 1.0, grid.steps)
        warn_of([machine for of_step in found for machine in of_step])

        def make(C: float, rho: float, fitted: list[FittedMachine]) -> OptimalNeighborhoodSVC:
            made = copy.copy(model)
            made.C, made.rho = C, rho
            made._keep(source, fitted)
            made.result_ = result_of(fitted, seconds, plan)
            made.n_iter_ = made.result_.n_iter
            return made

        return SVCPath.of(grid, found, make, source.n)

    def _run(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        C: float,
        steps: list[Step],
        session: Session | None = None,
        keeper: Keeper | None = None,
    ) -> tuple[RowSource, list[list[FittedMachine]], dict[str, float], Plan]:
        """All machines of all steps; `steps` multiply C."""
        limit = parse_bytes(self.memory_limit)
        source = row_source(given_rows(self, X, reset=True))
        labels = self._labels(y, source.n)
        weights = checked_weights(sample_weight, source.n)
        bounds, self.class_weight_ = box_bounds(C, self.class_weight, self.classes_, labels, weights)
        self._kernels = self._made_kernels(source)
        if self._is_precomputed and source.n != source.n_features:
            got = f"shape ({source.n}, {source.n_features})"
            raise InputError("a precomputed kernel must be square", where="X", got=got, wanted="(n, n)")
        settings = SVCSettings(
            self.solver, self.multi_class, float(self.tol), int(self.max_iter), self.dtype, limit, self.work_dir
        )
        fitted, plan, seconds = fit_machines(
            source,
            self._kernels,
            labels,
            len(self.classes_),
            bounds,
            steps,
            settings,
            session or self._session(),
            stage_callbacks(self.callbacks, self.verbose),
            keeper=keeper,
        )
        return source, fitted, seconds, plan

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """(m,) for two classes; else (m, classes), or (m, pairs) with decision_function_shape="ovo"."""
        found = self._decisions(X)
        return self._scheme.values(found)

    def predict(self, X: Any) -> NDArray:
        """(m,) class labels. Of one-against-one machines, those with most votes; as in SVC, the first of equals."""
        found = self._decisions(X)
        return np.asarray(self.classes_[self._scheme.classes(found)])

    # -- parts --------------------------------------------------------------------------------------------------------

    def _decisions(self, X: Any) -> NDArray[np.float64]:
        """(m, machines) of g(x) = sum_i y_i alpha_i k(x_i, x) + b."""
        check_is_fitted(self)
        rows = RowBlocks(given_rows(self, X, reset=False), self._session(), self.memory_limit)
        points = self.support_ if self._is_precomputed else self.support_vectors_
        machines = Machines(self._kernels, self.kernel_weights_, points, self.dual_coef_, self.intercept_)
        return machines.decide(rows)

    @property
    def _scheme(self) -> Scheme:
        return Scheme(len(self.classes_), self.multi_class, self.decision_function_shape)

    def _session(self) -> Session:
        return Session.find(self.client, threads=self.n_jobs)

    def _labels(self, y: Any, n: int) -> NDArray[np.intp]:
        """(n,) class numbers; sets classes_."""
        if y is None:
            what = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InputError(what, mend="pass the labels")
        try:
            given = column_or_1d(y, warn=True)
            if given.dtype.kind == "S":  # scikit-learn refuses them only from 1.7 on
                raise TypeError("labels must not be bytes: turn them into text")
            if given.dtype.kind == "f":
                assert_all_finite(given, input_name="y")
            check_classification_targets(given)
        except (ValueError, TypeError) as error:
            raise InputError(" ".join(str(error).split()), where="y") from error
        if len(given) != n:
            raise InputError("inconsistent numbers of samples", where="y", got=f"shape {given.shape}", wanted=f"({n},)")
        self.classes_, labels = np.unique(given, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"{len(self.classes_)} class"
            raise InputError("The number of classes has to be greater than one", where="y", got=got)
        return labels

    def _made_kernels(self, source: RowSource) -> list[Kernel]:
        """The kernel, or each of several, which may have parameters of their own."""
        if self.solver == "level" and isinstance(self.kernel, (list, tuple)) and len(self.kernel) > 1:
            raise InputError("one kernel only", where='solver="level"', got=f"{len(self.kernel)} kernels")
        given = self.kernel if isinstance(self.kernel, (list, tuple)) else [self.kernel]
        common = {name: getattr(self, name) for name in ("gamma", "degree", "coef0", "kernel_params")}
        made = []
        for item in given:
            own = item if isinstance(item, dict) else {"kernel": item}
            chosen = {**common, **own}
            gamma = self._width(chosen["kernel"], chosen["gamma"], source)
            made.append(
                Kernel(chosen["kernel"], gamma, chosen["degree"], chosen["coef0"], dict(chosen["kernel_params"] or {}))
            )
        return made

    def _width(self, kernel: Any, gamma: Any, source: RowSource) -> float:
        """gamma as SVC has it: "scale" is 1 / (n_features * variance of X), "auto" 1 / n_features."""
        if gamma == "auto":
            return 1.0 / source.n_features
        if gamma != "scale":
            return float(gamma)
        if not isinstance(kernel, str) or kernel not in WITH_GAMMA:
            return 1.0 / source.n_features
        variance = _variance(source)
        return 1.0 / (source.n_features * variance) if variance > 0 else 1.0

    def _keep(self, source: RowSource, fitted: list[FittedMachine]) -> None:
        n = source.n
        coefficients = np.zeros((len(fitted), n))
        for row, machine in zip(coefficients, fitted, strict=True):
            row[machine.rows] = machine.coefficients
        self.support_ = np.flatnonzero((coefficients != 0).any(axis=0))
        if not self.support_.size:
            raise InputError("the box is too small to tell from zero", where="C", got=self.C, mend="raise C")
        self.dual_coef_ = coefficients[:, self.support_]
        self.intercept_ = np.array([machine.solution.point.intercept for machine in fitted])
        self.kernel_weights_ = np.array([machine.shares for machine in fitted])
        if not self._is_precomputed:
            self.support_vectors_ = RowBlocks(source, Session(None, threads=1)).take(self.support_)
        points = [machine.solution.point for machine in fitted]
        self.objective_ = np.array([point.objective for point in points])
        self.duality_gap_ = np.array([point.gap for point in points])
        self.relative_gap_ = np.array([point.relative_gap for point in points])


def _variance(source: RowSource) -> float:
    """Of all entries, as SVC computes it."""
    if source.is_in_memory and not sp.issparse(source.array):
        return float(np.var(source.array))
    total, squares, count = 0.0, 0.0, 0
    for lo in range(0, source.n, 65_536):
        rows = source.read(lo, min(lo + 65_536, source.n))
        values = rows.data if sp.issparse(rows) else rows
        total += float(values.sum(dtype=float))
        squares += float(np.square(values, dtype=float).sum())
        count += rows.shape[0] * rows.shape[1]
    return squares / count - (total / count) ** 2

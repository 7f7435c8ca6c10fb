"""`OptimalNeighborhoodSVC`: a support vector machine with a kernel learned near a given one."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.rows.predictions import KeptPoints, kernel_of_rows, naming_z, rows_to_predict
from dkl.blocks.rows.row_sources import is_dask, row_source
from dkl.errors import InputError
from dkl.estimators.base.classes import checked_labels
from dkl.estimators.base.mixins import KernelParameter, lazily, numbered
from dkl.estimators.base.progress import listed_callbacks, warn_of, watch_for
from dkl.estimators.base.settings import check_parameters, gathered
from dkl.estimators.base.side_information import given_labels
from dkl.estimators.base.validation import checked_rows, checked_weights, given_rows
from dkl.estimators.svm.decisions import FittedClassifier, Machines, Scheme, Training, kernels_of
from dkl.estimators.svm.model import MachineKernel, OwnCoordinates
from dkl.estimators.svm.plot_data import DrawnDecisions, plot_data, training_decisions
from dkl.estimators.svm.settings import SVCSettings
from dkl.plotting.figures import draw_plot
from dkl.resources import parse_bytes

if TYPE_CHECKING:  # a loaded classifier predicts without what a fit imports, numba above all
    from collections.abc import Callable

    from dkl.estimators.base.validation import (
        UserCallbacks,
        UserFolder,
        UserKernel,
        UserLabels,
        UserRows,
        UserSeed,
        UserWeights,
    )
    from dkl.estimators.svm.classifier import SVCPath
    from dkl.plotting.figures import Axes


class OptimalNeighborhoodSVC(ClassifierMixin, KernelParameter):
    """Support vector classification with the optimal neighborhood kernel (ONK).

    Learns G near the kernel matrix K together with the machine:

        min over G psd, max over 0 <= alpha <= C, y'alpha = 0:  2 e'alpha - alpha'Y G Y alpha + rho |G - K|_F^2

    (Liu, Chen, Chen, Ye, IJCAI 2009, (3)). G = K + (Y alpha)(Y alpha)' / (2 rho); as rho grows this becomes SVC.

    Parameters
    ----------
    C : float
        The box of the dual, as in SVC; times class and sample weights. A row given twice is not quite one of weight 2:
        |G - K| counts both.
    rho : float or "scale"
        Weight of the distance between G and K: the smaller, the further G may go. A machine is that of K + lambda I,
        lambda = |alpha|^2 / (2 rho), so that one number means much for many rows or a large C, and little for few rows or a
        small C. "scale" is the least rho by which no support vector can give up more than a quarter of the margin,
        lambda C_i <= 1/4: 4 n C^3 for n rows in the smaller of two classes. It is computed from C, weights and labels, for
        each machine on its own; `dkl/problems/svm/problem.py` derives it. Whether a smaller one is better, which
        changes the machine more, is a question for cross-validation over numbers below `rho_`.
    kernel, gamma, degree, coef0, kernel_params
        As in SVC and `sklearn.metrics.pairwise.pairwise_kernels`; "precomputed": X is (n, n), and (m, n) to predict. A
        list of kernels (names, functions, or dictionaries of `kernel` with its own parameters) is combined: their
        weights are learned together with the machine, and each must be positive semidefinite. A single one of your own,
        or "sigmoid", is not checked: where it is indefinite the gap proves nothing. A function gets two matrices, as in
        SVC, blocks of rows (t, d) and points (m, d), with `kernel_params`, and returns (t, m).
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), for later rows too. "auto" does so, with a
        warning, where some of far larger spread decide all distances, or where gamma="scale" would be the width of their means.
    solver : "accelerated", "gradient" or "level"
        Accelerated projected gradient with Newton steps on the face that it ends on, of up to 1,000 rows a machine from
        where steps of two coefficients lead; or the paper's Algorithms 2 and 1, the latter for up to some thousand rows.
    stopping : "gap" or "paper"
        A relative duality gap of `tol`; or as the paper ends "gradient", by the relative change of alpha, and "level", by a gap of
        `tol` that is not relative.
    tau : float
        The paper's tau of "level": where its next point may be between the bounds, nearer to the lower one the smaller it is.
    multi_class : "ovo" or "ovr"
        One machine a pair of classes, as SVC, or one a class against the rest.
    decision_function_shape : "ovr" or "ovo"
        Of one-against-one machines, as in SVC.
    class_weight : None, "balanced" or dict
        As in SVC: "balanced" counts the rows of a class, whatever their sample weights, which come on top.
    tol, max_iter
        Relative duality gap; steps of a machine: of a gradient, or as many of two coefficients as there are rows.
    holdout : float
        Share of each class that `result_.quality` is measured on, at most 0.5; 0: it is not measured. The final fit is on all rows.
    dtype : "float64" or "float32"
        Of the kernel matrix. The gap is always computed in double.
    memory_limit : int, str or None
        Bytes a process may use in addition to an X in memory. Of a single machine only the columns at the support are made, and K
        of the rows that count is held. Where many products are to come (several machines of all rows, `path()`, other solvers, a
        kernel function of your own) K is held whole; one that does not fit is kept in `work_dir`, or recomputed.
    work_dir : str, path or None
        A folder for kernel matrices while fit runs; workers must see it under the same name.
    client : distributed.Client or None
        Where products are made that do not fit here. None finds the current client, else uses threads.
    n_jobs, random_state, callbacks, verbose
        Threads; seed; functions called with each row of the history (True ends the fit: the machines' coefficients so far
        are the model, with their gaps, zero for those not started); progress on standard error.

    Attributes
    ----------
    classes_, class_weight_
    support_ : row numbers of the support vectors, support_vectors_ : their rows
    kernel_weights_ : (machines, kernels) how much of each kernel there is in K; 1 for a single one
    rho_ : (machines,) what rho was
    dual_coef_ : (machines, n_support) y alpha, intercept_ : (machines,)
    objective_, duality_gap_, relative_gap_ : (machines,)
    result_, n_iter_, scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    sklearn.svm.SVC : The machine as rho grows.

    References
    ----------
    J. Liu, J. Chen, S. Chen, J. Ye, Learning the optimal neighborhood kernel for classification, IJCAI 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl import OptimalNeighborhoodSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OptimalNeighborhoodSVC(n_jobs=1, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9 and model.relative_gap_.max() < 1e-6)
    True
    """

    _rows_kept: DrawnDecisions | None
    SENT = ("kernel", "kernel_params")

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
        solver: str = "accelerated",
        stopping: str = "gap",
        tau: float = 0.5,
        multi_class: str = "ovo",
        decision_function_shape: str = "ovr",
        class_weight: object = None,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        holdout: float = 0.1,
        dtype: str = "float64",
        memory_limit: int | str | None = None,
        work_dir: UserFolder = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
        callbacks: UserCallbacks = None,
        verbose: int = 0,
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
        self.stopping = stopping
        self.tau = tau
        self.multi_class = multi_class
        self.decision_function_shape = decision_function_shape
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.holdout = holdout
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.work_dir = work_dir
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: UserRows, y: UserLabels, sample_weight: UserWeights = None) -> OptimalNeighborhoodSVC:
        """Learn from rows X (n, d) and class labels y (n,).

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
        MemoryBudgetError, DiskError
            For a kernel matrix that fits neither in memory nor in `work_dir`, before it is computed.
        """
        from dkl.estimators.svm.classifier import fit_classifier

        settings = self._checked()
        training = self._training(X, y, sample_weight, settings.C)
        with watch_for(self.callbacks, self.verbose) as watch:
            self._adopt(fit_classifier(training, settings, self._session(), watch))
        self.class_weight_ = training.class_weight
        self._rows_kept = training_decisions(self._machines, self._scheme, training)
        return self

    def path(
        self, X: UserRows, y: UserLabels, Cs: object, rhos: object = "scale", *, sample_weight: UserWeights = None
    ) -> SVCPath:
        """Fit at every C and rho of a grid, from one kernel matrix, each started at its neighbor's solution.

        The estimator's own C and rho play no part, and what was fitted stays as it is.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        Cs : numbers above 0
        rhos : numbers above 0, or "scale" for the one of the rule at each C

        Returns
        -------
        SVCPath
            The machines at every point of the grid, fitted.
        """
        from dkl.estimators.svm.classifier import Grid, SVCPath, classifier_of
        from dkl.estimators.svm.fit import fit_machines, result_of

        settings, grid = self._checked(), Grid.of(Cs, rhos)
        # A path leaves what `fit` has found as it is.
        model = copy.copy(self)
        training = model._training(X, y, sample_weight, 1.0)
        model.class_weight_ = training.class_weight
        with watch_for(self.callbacks, self.verbose) as watch:
            found, plan, seconds = fit_machines(training, grid.steps, settings, self._session(), watch)
        ended = settings.tol, seconds, watch.seconds, plan
        result = result_of([machine for of_step in found for machine in of_step], *ended)
        warn_of(result, stacklevel=2)
        at = partial(model._at, partial(classifier_of, training, *ended))
        return SVCPath.of(grid, found, at, training.source.n, result)

    def _at(
        self, of: Callable[..., FittedClassifier], C: float, rho: float | str, fitted: object
    ) -> OptimalNeighborhoodSVC:
        """Return the fitted classifier of a point of a path."""
        made = copy.copy(self)
        made.C, made.rho = C, rho
        made._adopt(of(fitted))
        return made

    def _checked(self) -> SVCSettings:
        """Return the settings if all parameters are valid."""
        check_parameters(self, SVCSettings)
        listed_callbacks(self.callbacks)
        return gathered(
            SVCSettings, self, kernel=self.kernel, memory_limit=parse_bytes(self.memory_limit), work_dir=self.work_dir
        )

    def _training(self, X: UserRows, y: UserLabels, sample_weight: UserWeights, C: float) -> Training:
        """Check rows, labels, weights and kernels against each other, and return them."""
        source = row_source(given_rows(self, X, reset=True))
        classes, numbers = checked_labels(given_labels(y), source.n, type(self).__name__)
        weights = checked_weights(sample_weight, source.n)
        kernels = kernels_of(gathered(SVCSettings, self, kernel=self.kernel), source, self.kernel_params)
        return Training.of(source, classes, numbers, kernels, C, self.class_weight, weights)

    def decision_function(self, X: UserRows) -> NDArray[np.float64]:
        """Return decision values (m,) for two classes; else (m, classes), or (m, pairs) in the shape "ovo".

        The shape is decision_function_shape. For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "decision_function", X, self._scheme.values(np.empty((0, len(self.dual_coef_)))))
        found = self._decisions(X)
        return self._scheme.values(found)

    def predict(self, X: UserRows) -> NDArray:
        """Return class labels (m,): by most votes of one-against-one machines, the first of equals, as SVC.

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "predict", X, self.classes_[:0])
        found = self._decisions(X)
        return np.asarray(self.classes_[self._scheme.classes(found)])

    def kernel_matrix(
        self, X: UserRows, Z: UserRows = None, *, machine: int | None = None, rows: object = None, lazy: bool = False
    ) -> Any:
        """Return the kernel that a machine learned, k~(x, z) = k(x, z) + e(x) e(z) (Liu et al. 2009, section 2.2).

        e(x_i) = y_i alpha_i / sqrt(2 rho) for rows learned from, among which it is G of (5), and 0 for others.

        Parameters
        ----------
        X : (m, d) rows; of a precomputed kernel (m, n), their values with the rows learned from
        Z : (l, d) rows, optional
            Left out, X itself; of a precomputed kernel, always left out, the rows learned from.
        machine : int, optional
            Number of the machine, in the order of `dual_coef_`. Left out, the only one.
        rows : (m,) row numbers, optional
            Of each row of X its number among the rows learned from, -1 for none. Left out, a row that equals a support vector
            is taken for it; of a precomputed kernel it must be given.
        lazy : bool
            Whether to return a dask array, whose blocks are computed when they are read.

        Returns
        -------
        (m, l) array, or dask array

        Raises
        ------
        InputError
            For rows that `predict` refuses, a machine that there is not, and a row that equals several rows learned from, of
            different labels or weights.
        """
        check_is_fitted(self)
        shares, own = self._learned_by(machine)
        given = checked_rows(self, X, reset=False)
        with naming_z():
            others = None if Z is None else checked_rows(self, Z, reset=False)
        if self._is_precomputed and (rows is None or Z is not None):
            raise InputError(
                "values of a precomputed kernel do not say which rows they are of", where="rows" if Z is None else "Z",
                wanted="rows=, of each row of X its number among the rows learned from, or -1, and no Z",
            )  # fmt: skip
        m = given.shape[0]
        left = own.of_equal(given, self.support_vectors_, "X") if rows is None else own.of_numbers(rows, m)
        if self._is_precomputed:
            right = own.of_all(self.n_features_in_)
        else:
            right = left if others is None else own.of_equal(others, self.support_vectors_, "Z")
        kernel = MachineKernel(self._kernels, shares)
        K = kernel_of_rows(kernel, given, others, lazy=lazy, is_precomputed=self._is_precomputed)
        return K + left[:, None] * right

    def _learned_by(self, machine: int | None) -> tuple[NDArray[np.float64], OwnCoordinates]:
        """Return what a machine learned: the shares of the kernels, and the coordinates of the rows learned from."""
        number = numbered(machine, len(self.dual_coef_), "machine")
        own = self.dual_coef_[number] / np.sqrt(2 * self.rho_[number])
        return self.kernel_weights_[number], OwnCoordinates(self.support_, own)

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the machines: a new matplotlib Figure with all panels, or `ax` with the confusion matrix.

        X (m, d), y (m,): rows to predict, held out perhaps, in place of a sample of those learned from.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: plot_data(self, X, y))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _decisions(self, X: UserRows) -> NDArray[np.float64]:
        """Return g(x) = sum_i y_i alpha_i k(x_i, x) + b of each machine, (m, machines)."""
        rows = rows_to_predict(given_rows(self, X, reset=False), self._session(), self.memory_limit)
        return self._machines.decide(rows)

    @property
    def _machines(self) -> Machines:
        points = self.support_ if self._is_precomputed else self.support_vectors_
        kept = self.__dict__.get("_kept_points")  # not of a pickle by an earlier version, nor of points set by hand
        kept = kept if kept is not None and kept.points is points else None
        return Machines(self._kernels, self.kernel_weights_, points, self.dual_coef_, self.intercept_, kept)

    @property
    def _scheme(self) -> Scheme:
        return Scheme(len(self.classes_), self.multi_class, self.decision_function_shape)

    def _adopt(self, fitted: FittedClassifier) -> None:
        """Set the fitted attributes, from a fit or from a run's folder."""
        self._rows_kept = None
        machines = fitted.machines
        self.classes_, self.n_features_in_ = fitted.classes, fitted.n_features
        self._kernels, self.kernel_weights_ = machines.kernels, machines.shares
        self.support_, self.dual_coef_, self.intercept_ = fitted.support, machines.coefficients, machines.intercepts
        self._kept_points = KeptPoints(machines.points)
        if not machines.kernels[0].is_precomputed:
            self.support_vectors_ = machines.points
        self.rho_, self.objective_ = fitted.rhos, fitted.objectives
        self.duality_gap_, self.relative_gap_ = fitted.gaps, fitted.relative_gaps
        self.result_, self.n_iter_ = fitted.result, fitted.result.n_iter

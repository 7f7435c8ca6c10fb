"""`LowRankKernelRegressor`: kernel regression that learns the weights of its columns."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import InputError, MemoryBudgetError
from dkl.estimators.base.progress import listed_callbacks, watch_for
from dkl.estimators.base.run_arrays import describe_names, log_machine
from dkl.estimators.base.work_folder import next_run
from dkl.estimators.regression.columns.estimator import KernelColumnsRegressor
from dkl.estimators.regression.columns.fit import ColumnSums, fold_numbers, make_pass
from dkl.estimators.regression.fit import FittedColumns, fit_columns, paper_solver
from dkl.estimators.regression.learned_kernel import LearnedColumnsKernel
from dkl.estimators.regression.path import RegressionPath, descending, path_of
from dkl.estimators.regression.plot_data import plot_data, training_fit
from dkl.estimators.regression.quality import assess
from dkl.estimators.regression.settings import BY_COLUMNS, RegressionSettings
from dkl.estimators.regression.store import fit_in_run
from dkl.plotting.figures import draw_plot
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore
from dkl.stores.seals import drawn

if TYPE_CHECKING:
    from dkl.estimators.base.validation import (
        CheckedRows,
        UserCallbacks,
        UserFolder,
        UserKernel,
        UserLabels,
        UserRows,
        UserSeed,
    )
    from dkl.plotting.figures import Axes


class LowRankKernelRegressor(LearnedColumnsKernel, KernelColumnsRegressor):
    """Kernel regression on a sparse, learned combination of kernel columns (SLKL).

    Minimizes over mu >= 0, for each output,

        lambda y'(lambda I + C diag(mu) C')^-1 y + nu sum(mu)          (Machart et al. 2011, (14))

    where column m of C is k(., x_m) / sqrt(k(x_m, x_m)), for M candidate rows x_m. This is the lasso on C, with penalty
    sqrt(lambda nu). One pass over the rows adds up C'C and C'y; all that follows does not depend on their number.

    Parameters
    ----------
    kernel, gamma, degree, coef0, kernel_params
        As in `sklearn.metrics.pairwise.pairwise_kernels`; a callable, or "precomputed". gamma: a number, "scale" for
        1 / (n_features * variance of X), as SVC has it, whatever the unit of X; "auto" or None for 1 / n_features.
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), for later rows too. "auto" does so, with a
        warning, where some of far larger spread decide all distances, or where gamma="scale" would be the width of their means.
    nu : float or "cv"
        The paper's nu: the larger, the fewer columns. "cv" chooses it by cross-validation, which costs no further pass.
    lam : float
        The paper's lambda. Only the product lam * nu matters (its Proposition 3).
    n_columns : int
        Candidate columns M, or all rows where there are fewer.
    columns : "uniform", "rpcholesky", row numbers (M,) or points (M, n_features)
        How candidates are drawn: uniformly, as in the paper, or by randomly pivoted Cholesky.
    solver : "active-set", "exact", "newton", "paper" or "printed"
        Newton steps on the active set of the lasso; coordinate descent on mu with the exact minimizer or with the paper's
        Newton step (19); "paper" is its Algorithm 2, on the columns in memory, "printed" the same with the slips of the print.
    sampling : "uniform" or "greedy"
        Which coordinate "exact" and "newton" take next.
    stopping : "gap" or "paper"
        A relative duality gap of `tol`; or the paper's rule: M steps lower the objective by less than a share `tol`.
    fit_intercept : bool
        Whether a constant is fitted too, unpenalised.
    tol, max_iter
        `max_iter`: Newton steps, or passes of M coordinate steps.
    cv, n_nus
        Folds of cross-validation: a number, a splitter or an iterable of (train, test) that holds out each row once; values
        of nu in the first nine decades of the path that it looks along, which continues below as long as that helps.
    refit : "auto", "active", "all", "best" or "never"
        With nu="cv": predict by a ridge in the lasso's place, on the columns that the lasso has chosen ("active") or on all M
        ("all"), with the kernel's norm as its penalty and its lambda chosen by the same folds. "auto": on the lasso's columns
        where the held-out error is less, so that the model is as sparse as the lasso; "best": also on all columns where the error is
        less by more than a standard error, which it commonly is (benchmarks/regression/slkl_refit.md).
    holdout : float
        Share of the rows that `result_.quality` is measured on, at most 0.5; 0: it is not measured. The folds are used where nu
        is chosen by cross-validation. The final fit is on all rows.
    dtype : "float64" or "float32"
        Of the columns. Sums are kept in double either way.
    store_columns : bool
        Keep the columns (n x M) in zarr, in the run's folder: needs `work_dir`.
    memory_limit : int, str or None
        Bytes a process may use in addition to an X in memory. A Gram matrix that does not fit goes to disk.
    work_dir : path or None
        Folder for the run's store (candidates, sums in between, model).
    checkpoint_every : int or "auto"
        Waves of the pass between commits; "auto" goes by time. Only with `work_dir`.
    client : distributed.Client or None
        Where to run. None finds the current client, if there is one, else uses threads of this process.
    n_jobs, random_state, callbacks, verbose
        Threads; seed; functions called with each row of the history (True ends the fit: the result so far is
        the model, with its gap); progress on standard error.

    Attributes
    ----------
    coef_ : (n_active_,) or (T, n_active_) weights of k(x, support_vectors_)
    intercept_ : float or (T,)
    weights_ : (M,) or (T, M) the paper's mu, of the lasso
    columns_, support_ : row numbers of the candidates, and of those that are active in any output
    support_vectors_ : the active points
    nu_, nu_max_ : the nu used; the least one at which all weights are zero
    objective_, duality_gap_, relative_gap_ : float or (T,), of the lasso
    cv_ : CrossValidation, with nu="cv"
    refit_ : Refit, with the ridge's own lambda, objectives and gaps; None where the lasso predicts
    gamma_ : the kernel's width; None of a kernel that has none
    result_, n_iter_, n_active_, n_columns_, scale_ (means and spreads of the columns, or None), n_features_in_, run_path_

    See Also
    --------
    dkl.baselines.NystromRegressor : A ridge on the same columns, none of them left out.
    dkl.baselines.KernelRidgeRegressor : A ridge on whole rows, in memory.
    sklearn.kernel_ridge.KernelRidge : The same kernels, all rows, in memory.

    References
    ----------
    P. Machart, T. Peel, L. Ralaivola, S. Anthoine, H. Glotin, Stochastic low-rank kernel learning for regression, ICML 2011.
    https://hal.science/hal-00657837

    Examples
    --------
    >>> import numpy as np
    >>> from dkl import LowRankKernelRegressor
    >>> X = np.linspace(0, 3, 60)[:, None]
    >>> model = LowRankKernelRegressor(gamma=1.0, nu=0.01, n_jobs=1, random_state=0).fit(X, np.sin(3 * X[:, 0]))
    >>> bool(model.n_active_ < 20 and model.relative_gap_ < 1e-4)
    True
    >>> bool(np.abs(model.predict(X) - np.sin(3 * X[:, 0])).max() < 0.1)
    True
    """

    SETTINGS = RegressionSettings

    def __init__(
        self,
        kernel: UserKernel = "rbf",
        *,
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        nu: float | str = "cv",
        lam: float = 1.0,
        n_columns: int = 1000,
        columns: object = "uniform",
        solver: str = "active-set",
        sampling: str = "uniform",
        stopping: str = "gap",
        fit_intercept: bool = True,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        cv: int = 5,
        n_nus: int = 60,
        refit: str = "auto",
        holdout: float = 0.1,
        dtype: str = "float64",
        store_columns: bool = False,
        memory_limit: int | str | None = None,
        work_dir: UserFolder = None,
        checkpoint_every: int | str = "auto",
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
        callbacks: UserCallbacks = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.standardize = standardize
        self.nu = nu
        self.lam = lam
        self.n_columns = n_columns
        self.columns = columns
        self.solver = solver
        self.sampling = sampling
        self.stopping = stopping
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.cv = cv
        self.n_nus = n_nus
        self.refit = refit
        self.holdout = holdout
        self.dtype = dtype
        self.store_columns = store_columns
        self.memory_limit = memory_limit
        self.work_dir = work_dir
        self.checkpoint_every = checkpoint_every
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: UserRows, y: UserLabels, sample_weight: object = None) -> LowRankKernelRegressor:
        """Learn from rows X (n, d) and targets y (n,) or (n, T).

        Parameters
        ----------
        X : (n, d) rows, or a kernel matrix (n, n)
        y : (n,) or (n, T) targets
        sample_weight : (n,) numbers >= 0, optional

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows, targets or weights that are not valid, before any work.
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        DiskError
            Where `work_dir` cannot be written to.
        """
        settings = self._start()
        # Before the rows are looked at: a folder that cannot be written to is refused at once.
        path = None if self.work_dir is None else next_run(self.work_dir, "regression")
        rows, targets, weights, offsets = self._checked(X, y, sample_weight)
        settings, fold_of = self._folds(settings, targets, weights)
        session = self._session(path)
        with watch_for(self.callbacks, self.verbose) as watch:
            if path is None:
                fitted = self._fit_here(rows, targets, weights, settings, fold_of, session, watch)
                fitted.add(offsets)
            else:
                names = describe_names(getattr(self, "feature_names_in_", None))
                run = RunStore.create(path, {"task": "regression", "settings": settings.as_dict(), **drawn(), **names})
                try:
                    log_machine(run)
                    with run.at_its_place():
                        fitted = fit_in_run(
                            run, rows, targets, weights, offsets, settings, session,
                            given=self._given_columns, fold_of=fold_of, watch=watch,
                        )  # fmt: skip
                except (InputError, MemoryBudgetError):  # nothing can come of it: there is nothing to resume
                    shutil.rmtree(path, ignore_errors=True)
                    raise
                finally:
                    run.close()
        self.run_path_ = None if path is None else str(path)
        self._keep(fitted)
        self._fit_kept = training_fit(self, rows, targets, offsets, weights)
        return self

    def path(
        self, X: UserRows, y: UserLabels, nus: Sequence[float] | None = None, *, sample_weight: object = None
    ) -> RegressionPath:
        """Return the models at every nu of a descending path, from one pass over the rows.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        nus : descending numbers, optional
            By default `n_nus` from the largest useful nu, and on to the last that cross-validation has looked at.

        Returns
        -------
        RegressionPath
            With nu="cv" it has the errors on rows held out.
        """
        if self.solver in BY_COLUMNS:
            raise InputError(
                "has no path", where=f"solver={self.solver!r}", remedy="use a solver that needs one pass for all"
            )
        values = None if nus is None else descending(nus)
        return copy.copy(self)._path(X, y, values, sample_weight)  # what was fitted stays as it is

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the fit: a new matplotlib Figure with all panels, or `ax` with predicted against observed.

        X (m, d), y (m,) or (m, T): rows to predict, held out perhaps, in place of a sample of those learned from.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: plot_data(self, X, y))

    # -- parts of fit -------------------------------------------------------------------------------------------------

    def _start(self) -> RegressionSettings:
        self._check_parameters()
        if self.store_columns and self.work_dir is None:
            raise InputError("nowhere to keep the columns", where="store_columns", remedy="give work_dir")
        if self.solver in BY_COLUMNS and self.work_dir is not None:
            raise InputError(
                "keeps nothing on disk", where=f"solver={self.solver!r}", remedy="use another solver, or no work_dir"
            )
        if callable(self.kernel) and self.work_dir is not None:
            raise InputError(
                "a run's folder holds no functions", where="kernel", remedy="name a kernel, or no work_dir"
            )
        listed_callbacks(self.callbacks)
        cv = int(self.cv) if isinstance(self.cv, Integral) else 5  # splits are counted when the rows are known
        settings: RegressionSettings = self._gathered(cv=cv)
        return settings

    def _path(
        self, X: UserRows, y: UserLabels, nus: NDArray[np.float64] | None, sample_weight: object
    ) -> RegressionPath:
        settings = self._start()
        rows, targets, weights, offsets = self._checked(X, y, sample_weight)
        settings, fold_of = self._folds(settings, targets, weights)
        session = self._session()
        with watch_for(self.callbacks, self.verbose) as watch, tempfile.TemporaryDirectory(prefix="dkl-") as temporary:
            passed = self._pass(rows, targets, weights, settings, fold_of, session, watch, Path(temporary))
            with blas_threads_for(len(passed.candidates.scale)):
                return path_of(passed, settings, session, watch, nus, offsets)

    def _fit_here(
        self,
        rows: CheckedRows,
        targets: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
        settings: RegressionSettings,
        fold_of: NDArray[np.intp] | None,
        session: Session,
        watch: Watch,
    ) -> FittedColumns:
        """Fit without storing anything on disk."""
        with tempfile.TemporaryDirectory(prefix="dkl-") as temporary:
            passed = self._pass(rows, targets, weights, settings, fold_of, session, watch, Path(temporary))
            paper = None
            if settings.whole_columns and passed.sums is not None:
                paper = paper_solver(rows, targets, weights, settings, session, passed)
            with blas_threads_for(len(passed.candidates.scale)):
                fitted = fit_columns(passed, settings, session, watch, paper)
            assess(fitted, rows, targets, weights, fold_of, settings, session, watch)
            return fitted

    def _folds(
        self, settings: RegressionSettings, targets: NDArray[np.float64], weights: NDArray[np.float64] | None
    ) -> tuple[RegressionSettings, NDArray[np.intp] | None]:
        """Return (settings with at most as many folds as weighted rows, each row's fold where `cv` gives it)."""
        if settings.nu != "cv":
            return settings, None
        if not isinstance(self.cv, Integral):
            fold_of = fold_numbers(self.cv, targets, weights)
            return replace(settings, cv=int(fold_of.max()) + 1), fold_of
        rows = len(targets) if weights is None else int(np.count_nonzero(weights))
        if rows < 2:
            raise InputError(
                f"cross-validation needs 2 rows: n_samples = {rows}", where="X", got=f"{rows} sample",
                wanted="2 or more", remedy="give nu as a number",
            )  # fmt: skip
        return replace(settings, cv=min(settings.cv, rows)), None

    def _pass(
        self,
        rows: CheckedRows,
        targets: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
        settings: RegressionSettings,
        fold_of: NDArray[np.intp] | None,
        session: Session,
        watch: Watch,
        folder: Path,
    ) -> ColumnSums:
        return make_pass(
            rows, targets, weights, settings, session,
            given=self._given_columns, fold_of=fold_of, folder=folder, watch=watch,
        )  # fmt: skip

    def _keep(self, fitted: FittedColumns) -> None:
        self._set_weights(fitted.candidates, fitted.weights, fitted.intercepts)
        self.nu_, self.nu_max_ = fitted.nu, fitted.nu_max
        evaluations = [solution.evaluation for solution in fitted.solutions]
        mu = fitted.kernel_weights(float(self.lam))
        self.weights_ = mu[0] if self._is_flat else mu
        for name, values in (
            ("objective_", [e.objective for e in evaluations]),
            ("duality_gap_", [e.gap for e in evaluations]),
            ("relative_gap_", [e.relative_gap for e in evaluations]),
        ):
            setattr(self, name, values[0] if self._is_flat else np.array(values))
        self.cv_, self.refit_ = fitted.cv, fitted.refit
        self.result_, self.n_iter_ = fitted.result, fitted.result.n_iter

"""Kernel ridge regression as the paper's tables have it: on all n rows (KRR_n), or on M of them alone (KRR_M)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge

from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, RowBlocks, machine_memory
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import InputError
from dkl.estimators.base.rules import DICTIONARY, Either, Integer, NotGiven, Real
from dkl.estimators.base.settings import IN_ALL
from dkl.estimators.regression.columns.candidates import choose_candidates
from dkl.estimators.regression.columns.estimator import KernelColumnsRegressor
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLabels, UserRows, UserSeed, UserWeights

SQUARES = 4
"""Number of M x M matrices held at a time: kernel, scikit-learn's weighted copy, factor and its copy."""


@dataclass(frozen=True)
class KernelRidgeSettings(ColumnSettings):
    """Settings of kernel ridge regression. lam: its lambda; n_columns: rows to learn from, None for all."""

    lam: Annotated[float, Real(above=0), "The ridge's lambda."] = 1.0
    n_columns: Annotated[Any, Either(Integer(1), NotGiven()), "Rows to learn from."] = None

    in_python = {"kernel_params": (None, DICTIONARY), **IN_ALL}
    not_in_python = ("checkpoint_every", "store_columns", "dtype")


class KernelRidgeRegressor(KernelColumnsRegressor):
    """Kernel ridge regression by scikit-learn's `KernelRidge`, on all rows or on some of them.

        minimize over a, c    (y - K a - c)' S (y - K a - c) + lambda a'K a,        S = diag(sample weights)

    The rows that are left out are not looked at: this is the paper's KRR_M, which the low-rank methods have to beat.

    Parameters
    ----------
    lam : float
        The ridge lambda, `alpha` in scikit-learn.
    n_columns : int or None
        Rows M to learn from; None takes all.
    columns : "uniform", "rpcholesky" or row numbers (M,)
        How they are drawn.
    memory_limit : int, str or None
        Bytes this process may use; what needs more is refused before it starts.
    kernel, gamma, degree, coef0, kernel_params, standardize, fit_intercept, client, n_jobs, random_state
        As in `dkl.LowRankKernelRegressor`. The client serves the choice of rows and `predict`; the system is solved here.

    Attributes
    ----------
    coef_, intercept_, columns_, support_, support_vectors_, n_columns_, n_active_, n_features_in_
    scale_ : means and spreads of the columns, or None; gamma_ : the kernel's width, or None

    See Also
    --------
    dkl.LowRankKernelRegressor : The low-rank method to beat it.
    NystromRegressor : All rows, on some columns.
    sklearn.kernel_ridge.KernelRidge : The solver.

    References
    ----------
    P. Machart, T. Peel, L. Ralaivola, S. Anthoine, H. Glotin, Stochastic low-rank kernel learning for regression, ICML 2011.
    https://hal.science/hal-00657837

    Examples
    --------
    >>> import numpy as np
    >>> from dkl.baselines import KernelRidgeRegressor
    >>> X = np.linspace(0, 3, 40)[:, None]
    >>> model = KernelRidgeRegressor(gamma=1.0, lam=1e-3, n_jobs=1).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 1e-2)
    True
    """

    SETTINGS = KernelRidgeSettings
    dtype = "float64"

    def __init__(
        self,
        kernel: UserKernel = "rbf",
        *,
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        lam: float = 1.0,
        n_columns: int | None = None,
        columns: object = "uniform",
        fit_intercept: bool = True,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.standardize = standardize
        self.lam = lam
        self.n_columns = n_columns  # type: ignore[assignment]  # None is every row, which the other regressors cannot take
        self.columns = columns
        self.fit_intercept = fit_intercept
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: UserRows, y: UserLabels, sample_weight: UserWeights = None) -> KernelRidgeRegressor:
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
        """
        self._check_parameters()
        given = self._given_columns
        if given is not None and given.ndim == 2:
            raise InputError("points have no targets", where="columns", got=f"shape {given.shape}",
                             wanted='"uniform", "rpcholesky" or row numbers (M,)')  # fmt: skip
        rows, targets, weights, offsets = self._checked(X, y, sample_weight)
        n = len(targets)
        count = n_rows(n, self.n_columns, given)
        self._check_size(count)
        settings = self._gathered(n_columns=count)
        blocks = RowBlocks(rows, self._session(), self.memory_limit)
        chosen = choose_candidates(blocks, settings, given, weights)
        # Only the chosen rows are read again; the others serve the choice alone.
        kept = chosen.indices
        self._set_width(chosen)
        K = np.asarray(self._kernel().columns(blocks.take(kept), chosen.points), np.float64)
        if not np.isfinite(K).all():
            raise InputError(
                "the kernel is not finite", where=f"kernel={self.kernel!r}", remedy="scale the columns of X"
            )
        a, constants = self._solve(K, targets[kept], None if weights is None else weights[kept])
        unscaled = replace(chosen, scale=np.ones(len(kept)))  # a goes with k(., x_m) itself
        self._set_weights(unscaled, a, constants + offsets)
        return self

    def _solve(
        self, K: NDArray[np.float64], targets: NDArray[np.float64], weights: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weights (T, M), constants (T,): a = (K + lambda S^-1)^-1 (y - c 1), with c so that sum a = 0."""
        # One factorization for the targets and for the ones, which the constant needs.
        right = np.concatenate([targets, np.ones((len(targets), 1))], axis=1)
        with blas_threads_for(len(K)):
            a = KernelRidge(alpha=self.lam, kernel="precomputed").fit(K, right, sample_weight=weights).dual_coef_.T
        of_targets, of_ones = a[:-1], a[-1]
        if not self.fit_intercept:
            return of_targets, np.zeros(len(of_targets))
        constants = of_targets.sum(axis=1) / of_ones.sum()
        return of_targets - np.outer(constants, of_ones), constants

    def _check_size(self, count: int) -> None:
        """Raise MemoryBudgetError where M x M matrices do not fit."""
        limit = Place(1, 1).allowed(parse_bytes(self.memory_limit)) or int(MEMORY_SHARE * machine_memory())
        Plan(
            placement="memory",
            processes=1,
            threads=1,
            base=PROCESS_BASE,
            items={f"the kernel matrix of {count} rows and its factor": SQUARES * 8 * count * count},
            disk={},
            limit=limit,
            remedy="learn from fewer rows (n_columns), or take dkl.LowRankKernelRegressor or dkl.baselines.NystromRegressor",
        ).validate()


def n_rows(n: int, n_columns: int | None, given: NDArray | None) -> int:
    """Return the number of rows to learn from."""
    if given is not None:
        return len(given)
    return n if n_columns is None else min(n_columns, n)

"""Ridge regression on M kernel columns, from the pass that SLKL makes: B = C'C and b = C'y, any number of rows.

Column m of C is k(., x_m) / sqrt(k(x_m, x_m)). With the weights' penalty w'P w,

    minimize over w, c    |y - C w - c|^2 + w'P w,        w = (B + P)^-1 b,

B and b about the columns' means if there is a constant c, and with sqrt(sample weight) on each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.estimators.base.rules import DICTIONARY, Either, Real, Word
from dkl.estimators.base.settings import IN_ALL
from dkl.estimators.regression.columns.candidates import Candidates, kernel_between
from dkl.estimators.regression.columns.estimator import KernelColumnsRegressor
from dkl.estimators.regression.columns.fit import make_pass
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.linalg.eigen.principal_coordinates import above_rounding
from dkl.problems.regression.column_gram import DenseGram

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows, UserKernel, UserLabels, UserRows, UserSeed, UserWeights

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class RidgeSettings(ColumnSettings):
    """Settings of a ridge on kernel columns. lam: its lambda."""

    lam: Annotated[float, Real(above=0), "The ridge's lambda."] = 1.0

    in_python = {"kernel_params": (None, DICTIONARY), **IN_ALL}
    not_in_python = ("checkpoint_every", "store_columns")


@dataclass(frozen=True)
class UniformSettings(RidgeSettings):
    """Settings of a ridge with equal weights. mu: the weight of each column."""

    mu: Annotated[float | str, Either(Real(above=0), Word("mean")), "Weight of each column."] = 1.0


class RidgeOnColumns(KernelColumnsRegressor):
    """Base of the two ridge methods on M columns, which differ in the penalty: the pass and the solve."""

    SETTINGS = RidgeSettings

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
        n_columns: int = 1000,
        columns: object = "uniform",
        fit_intercept: bool = True,
        dtype: str = "float64",
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
        self.n_columns = n_columns
        self.columns = columns
        self.fit_intercept = fit_intercept
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: UserRows, y: UserLabels, sample_weight: UserWeights = None) -> RidgeOnColumns:
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
        settings = self._gathered()
        # `offsets` are the targets' shift, which keeps targets far from 0 from losing digits in C'y.
        rows, targets, weights, offsets = self._checked(X, y, sample_weight)
        session = self._session()
        passed = make_pass(rows, targets, weights, settings, session, given=self._given_columns)
        self._set_width(passed.candidates)
        shared = passed.shared
        assert isinstance(shared.gram, DenseGram)  # without a folder the plan refuses what is larger
        system = shared.gram.matrix  # not copied: the pass is not used again
        with blas_threads_for(len(system)):
            self._add_penalty(system, passed.candidates, rows, session)
            w = solve_psd(system, shared.cross).T
        self._set_weights(passed.candidates, w, shared.intercepts(w) + offsets)
        return self

    def _add_penalty(self, system: Matrix, candidates: Candidates, rows: CheckedRows, session: Session) -> None:
        """Add the penalty P in place to `system` = B (M, M)."""
        raise NotImplementedError


class UniformWeightsRegressor(RidgeOnColumns):
    """Kernel ridge regression with equal weights on the columns ("Unif" in Machart et al. 2011).

    The kernel matrix is mu sum_m c_m c_m' = mu C C', so P = (lambda / mu) I.

    Parameters
    ----------
    mu : float or "mean"
        The weight of each column; "mean" is 1 / M, which the paper's figures go with.
    lam : float
        The ridge lambda.
    kernel, gamma, degree, coef0, kernel_params, standardize, n_columns, columns, fit_intercept
        As in `dkl.LowRankKernelRegressor`.
    dtype, memory_limit, client, n_jobs, random_state
        As there.

    Attributes
    ----------
    coef_, intercept_, columns_, support_, support_vectors_, n_columns_, n_active_, n_features_in_
    scale_ : means and spreads of the columns, or None; gamma_ : the kernel's width, or None

    See Also
    --------
    NystromRegressor : The same columns, with the kernel as penalty.
    dkl.LowRankKernelRegressor : Learned weights on the columns.
    sklearn.kernel_ridge.KernelRidge : All rows, in memory.

    References
    ----------
    P. Machart, T. Peel, L. Ralaivola, S. Anthoine, H. Glotin, Stochastic low-rank kernel learning for regression, ICML 2011.
    https://hal.science/hal-00657837

    Examples
    --------
    >>> import numpy as np
    >>> from dkl.baselines import UniformWeightsRegressor
    >>> X = np.linspace(0, 3, 40)[:, None]
    >>> model = UniformWeightsRegressor(gamma=1.0, lam=1e-3, n_columns=10, n_jobs=1, random_state=0)
    >>> bool(abs(model.fit(X, np.sin(X[:, 0])).predict([[1.0]])[0] - np.sin(1.0)) < 1e-2)
    True
    """

    SETTINGS = UniformSettings

    def __init__(
        self,
        kernel: UserKernel = "rbf",
        *,
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        mu: float | str = 1.0,
        lam: float = 1.0,
        n_columns: int = 1000,
        columns: object = "uniform",
        fit_intercept: bool = True,
        dtype: str = "float64",
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        super().__init__(
            kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            standardize=standardize,
            lam=lam,
            n_columns=n_columns,
            columns=columns,
            fit_intercept=fit_intercept,
            dtype=dtype,
            memory_limit=memory_limit,
            client=client,
            n_jobs=n_jobs,
            random_state=random_state,
        )
        self.mu = mu

    def _add_penalty(self, system: Matrix, candidates: Candidates, rows: CheckedRows, session: Session) -> None:
        mu = 1 / len(system) if isinstance(self.mu, str) else float(self.mu)
        system.flat[:: len(system) + 1] += self.lam / mu


class NystromRegressor(RidgeOnColumns):
    """Kernel ridge regression with the Nystrom approximation K_nM K_MM^+ K_Mn of the kernel matrix.

    P = lambda S K_MM S, where S
    scales the columns: s_m = 1 / sqrt(k(x_m, x_m)).

    Parameters
    ----------
    lam : float
        The ridge lambda.
    kernel, gamma, degree, coef0, kernel_params, standardize, n_columns, columns, fit_intercept
        As in `dkl.LowRankKernelRegressor`.
    dtype, memory_limit, client, n_jobs, random_state
        As there.

    Attributes
    ----------
    coef_, intercept_, columns_, support_, support_vectors_, n_columns_, n_active_, n_features_in_
    scale_ : means and spreads of the columns, or None; gamma_ : the kernel's width, or None

    See Also
    --------
    UniformWeightsRegressor : The same columns, with equal weights.
    dkl.LowRankKernelRegressor : Learned weights on the columns.
    sklearn.kernel_approximation.Nystroem : The approximation alone.

    References
    ----------
    C. Williams, M. Seeger, Using the Nystrom method to speed up kernel machines, NIPS 13, 2001.
    P. Machart, T. Peel, L. Ralaivola, S. Anthoine, H. Glotin, Stochastic low-rank kernel learning for regression, ICML 2011.
    https://hal.science/hal-00657837

    Examples
    --------
    >>> import numpy as np
    >>> from dkl.baselines import NystromRegressor
    >>> X = np.linspace(0, 3, 40)[:, None]
    >>> model = NystromRegressor(gamma=1.0, lam=1e-3, n_columns=10, n_jobs=1, random_state=0)
    >>> bool(abs(model.fit(X, np.sin(X[:, 0])).predict([[1.0]])[0] - np.sin(1.0)) < 1e-2)
    True
    """

    def _add_penalty(self, system: Matrix, candidates: Candidates, rows: CheckedRows, session: Session) -> None:
        blocks = RowBlocks(rows, session, self.memory_limit)
        system += self.lam * kernel_between(blocks, self._kernel(), candidates)
        system += system.T.copy()  # symmetric to the last bit, whatever the kernel's function rounds
        system /= 2


def solve_psd(A: Matrix, b: Matrix) -> Matrix:
    """Return A^-1 b of a positive semidefinite A (M, M) and b (M, T) in its range; least-norm if singular.

    Directions below the rounding of A are left out: what b has there is rounding too.
    """
    # Cholesky first: far cheaper than the eigenvectors, which only singular systems need.
    try:
        return np.asarray(cho_solve(cho_factor(A, lower=True), b))
    except LinAlgError:
        values, vectors = eigh(A)
        kept = above_rounding(values, len(A), float(values[-1]))
        V = vectors[:, kept]
        return np.asarray(V @ ((V.T @ b) / values[kept, None]))

"""The Nystrom method for a Gaussian process classifier, which table 3 of Machart et al. 2011 compares with.

    maximize over f    sum_i s_i log sigma(t_i f_i) - f'K~^+ f / 2,    K~ = v K_nM K_MM^+ K_Mn,    t_i = -1 or 1

is the mode of the posterior by Laplace's method (C. Williams, D. Barber, Bayesian classification with Gaussian processes, IEEE TPAMI
20, 1998) with K~ in place of the kernel matrix (C. Williams, M. Seeger, Using the Nystrom method to speed up kernel machines, NIPS
13, 2001). With K~ = Z Z', Z (n, M), f = Z w and the penalty is |w|^2 / 2: Newton's method costs n M^2 a step.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.memory_plan import check_size
from dkl.blocks.rows.predictions import kernel_block, rows_to_predict
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import is_dask, row_source
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.classes import checked_labels
from dkl.estimators.base.mixins import lazily
from dkl.estimators.base.rules import DICTIONARY, Integer, Real, Word
from dkl.estimators.base.settings import IN_ALL
from dkl.estimators.base.side_information import given_labels
from dkl.estimators.base.validation import checked_weights, given_rows
from dkl.estimators.regression.columns.candidates import Candidates, choose_candidates, kernel_between, n_candidates
from dkl.estimators.regression.columns.estimator import KernelColumnsEstimator
from dkl.estimators.regression.columns.fit import predicted
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.linalg.eigen.principal_coordinates import above_rounding
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLabels, UserRows, UserSeed, UserWeights

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
SHORTEST = 1e-10
"""Shortest step of Newton's method, as a share of the full one, before it is given up."""


@dataclass(frozen=True)
class NystromClassifierSettings(ColumnSettings):
    """Settings of the Nystrom classifier: the prior's variance, how new rows are placed, and when to end."""

    variance: Annotated[float, Real(above=0), "Variance of the prior, which the kernel is multiplied by."] = 1.0
    extension: Annotated[str, Word("rows", "columns"), "What the kernel of new rows is taken with."] = "rows"
    tol: Annotated[float, Real(least=0), "Relative distance to the mode's value to end at."] = 1e-10
    max_iter: Annotated[int, Integer(1), "Most steps of Newton's method."] = 100

    in_python = {"kernel_params": (None, DICTIONARY), **IN_ALL}
    not_in_python = ("checkpoint_every", "store_columns", "fit_intercept", "dtype")


@dataclass(frozen=True)
class LaplaceMode:
    """Mode of the posterior of one binary problem, f = Z w.

    w (M,); slopes (n,): gradient of the likelihood, of which w = Z'slopes; log_evidence: Laplace's approximation of the logarithm of the
    labels' probability; n_iter: steps taken; distance: half of Newton's decrement over the value, about how far below the mode it is.
    """

    w: Vector
    slopes: Vector
    log_evidence: float
    n_iter: int
    distance: float


def laplace_mode(Z: Matrix, t: Vector, weights: Vector, tol: float, max_iter: int) -> LaplaceMode:
    """Maximize sum_i weights_i log sigma(t_i (Z w)_i) - |w|^2 / 2 over w (M,), t (n,) of -1 and 1, by Newton's method."""
    w, f, done = np.zeros(Z.shape[1]), np.zeros(len(Z)), 0

    def value_of(w: Vector, f: Vector) -> float:
        return -float(weights @ np.logaddexp(0.0, -t * f)) - 0.5 * float(w @ w)

    value = value_of(w, f)
    while True:
        probability = expit(f)
        slopes = weights * ((t > 0) - probability)
        curvature = weights * probability * (1 - probability)
        # Made before the end is looked at, as the evidence takes its determinant.
        try:
            factor = cho_factor(np.eye(len(w)) + (Z.T * curvature) @ Z, lower=True)
        except (
            np.linalg.LinAlgError,
            ValueError,
        ) as error:  # the identity is lost next to the weights, or they overflow
            got, remedy = f"weights of up to {weights.max():g}", "scale the weights down, or lower the variance"
            what = "the sample weights are too large for the system to be solved"
            raise InputError(what, where="sample_weight", got=got, remedy=remedy) from error
        gradient = Z.T @ slopes - w
        step = cho_solve(factor, gradient)
        decrement = float(gradient @ step)
        # The value is below 0 from the start on, at w = 0 by the labels' weights times log 2: nothing divides by 0.
        distance = 0.5 * decrement / abs(value)
        length = 1.0
        if distance > tol and done < max_iter:
            along = Z @ step
            # Newton's method may overshoot where the likelihood is flat: the value must rise by a share of what it promises.
            while value_of(w + length * step, f + length * along) < value + 1e-4 * length * decrement:
                length /= 2
                if length < SHORTEST:
                    break
        if distance <= tol or done >= max_iter or length < SHORTEST:
            log_det = 2 * float(np.log(np.diag(factor[0])).sum())
            return LaplaceMode(w, slopes, value - 0.5 * log_det, done, distance)
        w, f, done = w + length * step, f + length * along, done + 1
        value = value_of(w, f)


class NystromClassifier(ClassifierMixin, KernelColumnsEstimator):
    """Gaussian process classifier on the Nystrom approximation of the kernel matrix (Williams and Seeger 2001).

        maximize over f    sum_i s_i log sigma(t_i f_i) - f'K~^+ f / 2,    K~ = v K_nM K_MM^+ K_Mn,    S = diag(sample weights)

    One class against the rest where there are more than two. Decision values are the process' mean at the mode.

    Parameters
    ----------
    variance : float
        v, the prior's variance. `log_evidence_` compares several on the rows learned from.
    extension : "rows" or "columns"
        Decision values of new rows x: "rows" is v k(x, X) a with the kernel itself, a the likelihood's slopes at all n rows learned
        from; "columns" has K~ in the place of k here too, v k(x, X_M) K_MM^+ K_Mn a, as a machine on M columns has it.
    tol, max_iter
        Distance to the mode's value, relative to it; most steps of Newton's method.
    kernel, gamma, degree, coef0, kernel_params, standardize, n_columns, columns
        As in `dkl.LowRankKernelRegressor`; the columns are M rows, drawn or given.
    memory_limit, client, n_jobs, random_state
        As there. The kernel's columns (n, M) are held in this process.

    Attributes
    ----------
    classes_ : class labels
    columns_ : row numbers of the columns, n_columns_ : how many
    support_vectors_, dual_coef_ : points (p, d) and coefficients (machines, p) of the decision values
    log_evidence_ : (machines,) Laplace's approximation of the log probability of the labels
    n_iter_ : (machines,) steps taken; scale_ (means and spreads of the columns of X, or None),
        gamma_ (the kernel's width, or None), n_features_in_

    See Also
    --------
    NystromRegressor : Least squares on the same approximation.
    sklearn.gaussian_process.GaussianProcessClassifier : All rows, which this is where the columns are all rows.

    References
    ----------
    C. Williams, M. Seeger, Using the Nystrom method to speed up kernel machines, NIPS 13, 682-688, 2001.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import NystromClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = NystromClassifier(n_columns=20, variance=10.0, n_jobs=1, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    SETTINGS = NystromClassifierSettings

    def __init__(
        self,
        kernel: UserKernel = "rbf",
        *,
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        variance: float = 1.0,
        extension: str = "rows",
        n_columns: int = 1000,
        columns: object = "uniform",
        tol: float = 1e-10,
        max_iter: int = 100,
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
        self.variance = variance
        self.extension = extension
        self.n_columns = n_columns
        self.columns = columns
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: UserRows, y: UserLabels, sample_weight: UserWeights = None) -> NystromClassifier:
        """Learn from rows X (n, d) and class labels y (n,).

        Warns with ConvergenceWarning where the mode is farther than `tol`.

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
            For work that does not fit in `memory_limit`, before it starts.
        """
        self._check_parameters()
        source = row_source(given_rows(self, X, reset=True, small_integers=True))
        n, given = source.n, self._given_columns
        self.classes_, numbers = checked_labels(given_labels(y), n, type(self).__name__)
        weights = checked_weights(sample_weight, n)
        if weights is not None and not np.bincount(numbers, weights).all():
            raise InputError(
                "all samples of a class have weight zero", where="sample_weight", wanted="two classes at least"
            )
        self._check_given(n)
        settings = self._gathered()
        self._check_size(n, n_candidates(n, settings, given), source.row_bytes)
        blocks = RowBlocks(source, self._session(), self.memory_limit)
        chosen = choose_candidates(blocks, settings, given, weights)
        self._set_width(chosen)
        with blas_threads_for(len(chosen.scale)):
            root = self._root(blocks, chosen)
            Z = np.concatenate(blocks.map(kernel_block, self._kernel(), chosen.points)) @ root
            s = np.ones(n) if weights is None else weights
            modes = [laplace_mode(Z, t, s, self.tol, self.max_iter) for t in self._targets(numbers)]
        self._keep(modes, root, chosen, blocks)
        self._warn(max(mode.distance for mode in modes))
        return self

    def decision_function(self, X: UserRows) -> Matrix:
        """Return the process' mean (m,) for two classes, positive for the second; else (m, classes); for X of Dask, a dask array."""
        check_is_fitted(self)
        if is_dask(X):
            count = len(self.classes_)
            return lazily(self, "decision_function", X, np.empty(0 if count == 2 else (0, count)))
        given = given_rows(self, X, reset=False, small_integers=True)
        rows = rows_to_predict(given, self._session(), self.memory_limit)
        found = predicted(rows, self._kernel(), self.support_vectors_, self.dual_coef_, np.zeros(len(self.dual_coef_)))
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

    def _check_size(self, n: int, count: int, row_bytes: int) -> None:
        """Raise MemoryBudgetError where the columns do not fit."""
        items = {
            f"{count} kernel columns of {n} rows, their features and these weighted": 3 * 8 * n * count,
            "squares of as many columns": 4 * 8 * count * count,
        }
        if self.extension == "rows":
            items["the rows, which new ones are compared with"] = n * row_bytes
        check_size(items, parse_bytes(self.memory_limit), "take fewer columns (n_columns), or learn from fewer rows")

    def _targets(self, numbers: NDArray[np.intp]) -> list[Vector]:
        """Return for each machine -1 and 1 (n,): 1 for the second of two classes, else for each against the rest."""
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(numbers == number, 1.0, -1.0) for number in positive]

    def _root(self, blocks: RowBlocks, chosen: Candidates) -> Matrix:
        """Return R (M, r) with R R' = v K_MM^+; directions below the rounding of K_MM are left out."""
        # Columns of length one are SLKL's convention; K_MM of the Nystrom method is the plain kernel.
        plain = Candidates(chosen.indices, chosen.points, np.ones(len(chosen.scale)))
        between = kernel_between(blocks, self._kernel(), plain)
        # A kernel function of the user's may differ from its transpose by rounding, of which eigh reads one half.
        values, vectors = eigh((between + between.T) / 2)
        kept = above_rounding(values, len(values), float(values[-1]))
        return np.asarray(np.sqrt(self.variance) * vectors[:, kept] / np.sqrt(values[kept]))

    def _keep(self, modes: list[LaplaceMode], root: Matrix, chosen: Candidates, blocks: RowBlocks) -> None:
        """Set the fitted attributes."""
        self.columns_, self.n_columns_ = chosen.indices, len(chosen.scale)
        if self.extension == "columns":
            self.dual_coef_, self.support_vectors_ = np.array([root @ mode.w for mode in modes]), chosen.points
        else:
            # By all n rows, as the process' mean is: exact in the kernel, at n kernel values a new row.
            everything = np.arange(blocks.n)
            self.dual_coef_ = self.variance * np.array([mode.slopes for mode in modes])
            self.support_vectors_ = everything if self._is_precomputed else blocks.take(everything)
        self.log_evidence_ = np.array([mode.log_evidence for mode in modes])
        self.n_iter_ = np.array([mode.n_iter for mode in modes])

    def _warn(self, distance: float) -> None:
        if not distance <= self.tol:
            text = f"the mode is {distance:.3g} away, more than tol={self.tol:g}: raise max_iter or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=3)

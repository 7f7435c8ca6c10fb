"""SLKL's regression by gradient steps on the kernel's weights, which Machart et al. 2011 set their Newton steps against.

    minimize over mu >= 0   F(mu) = lambda y'(lambda I + C diag(mu) C')^-1 y + nu sum mu                        (14)

With K = lambda I + C diag(mu) C', a = C'K^-1 y and P = C'K^-1 C the gradient is nu - lambda a^2 and the Hessian 2 lambda diag(a) P
diag(a): all of it from B = C'C, b = C'y and y'y, whatever the number of rows.

"coordinate" is Y. Nesterov's random coordinate descent (Efficiency of coordinate descent methods on huge-scale optimization problems,
CORE 2010), from which the paper's method differs in the step alone. Coordinate m moves by -1 / L_m times its derivative, cut at 0, with
the constant L_m = 2 y'y B_mm^2 / lambda^2: by Cauchy's inequality a_m^2 <= (y'K^-1 y) P_mm, and K^-1 is at most 1 / lambda.
"projected" moves all coordinates, by -1 / L times the gradient, cut at 0; L doubles until F is below its quadratic bound, and halves
after each step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dger

from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning
from dkl.estimators.base.rules import DICTIONARY, Integer, Real, Word
from dkl.estimators.base.settings import IN_ALL
from dkl.estimators.regression.columns.estimator import KernelColumnsRegressor
from dkl.estimators.regression.columns.fit import make_pass
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.problems.regression.column_lasso import ColumnLasso, output_problems
from dkl.solvers.regression.active_set import Solution, history_row
from dkl.solvers.watch import Watch, verdict

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLabels, UserRows, UserSeed, UserWeights


@dataclass(frozen=True)
class FirstOrderRegressorSettings(ColumnSettings):
    """Settings of SLKL's problem, lambda and nu, and which method solves it."""

    nu: Annotated[float, Real(above=0), "Weight of the sum of the kernel's weights."] = 0.1
    lam: Annotated[float, Real(above=0), "The ridge's lambda."] = 1.0
    solver: Annotated[str, Word("coordinate", "projected"), "How it is solved."] = "projected"
    tol: Annotated[float, Real(least=0), "Relative gap to end at."] = 1e-3
    max_iter: Annotated[int, Integer(1), "Most passes over the coordinates."] = 1000

    in_python = {"kernel_params": (None, DICTIONARY), **IN_ALL}
    not_in_python = ("checkpoint_every", "store_columns")


class FirstOrderRegressor(KernelColumnsRegressor):
    """SLKL's problem by gradient steps: Nesterov's coordinate descent with constant steps, or projected gradients.

        minimize over mu >= 0    lambda y'(lambda I + C diag(mu) C')^-1 y + nu sum mu

    "coordinate": coordinate m, drawn uniformly, moves by its derivative over L_m = 2 y'y |c_m|^4 / lambda^2, a bound of the second
    derivative anywhere. Machart et al. 2011 replace L_m by the second derivative itself. "projected": all coordinates move by the
    gradient, cut at 0, with a line search.

    Parameters
    ----------
    nu, lam : float
        Of the problem, as in `dkl.LowRankKernelRegressor`.
    solver : "coordinate" or "projected"
        The method.
    tol, max_iter
        Relative duality gap to end at; most passes over the coordinates, of M steps along one, or one along all.
    kernel, gamma, degree, coef0, kernel_params, standardize, n_columns, columns, fit_intercept
        As in `dkl.LowRankKernelRegressor`.
    dtype, memory_limit, client, n_jobs, random_state
        As there.

    Attributes
    ----------
    coef_, intercept_, columns_, support_, support_vectors_, n_columns_, n_active_, n_features_in_
    objective_, relative_gap_, n_iter_ : of each output
    history_ : of each output, rows of iteration (steps along coordinates), objective, relative gap and nonzero weights
    scale_ : means and spreads of the columns, or None; gamma_ : the kernel's width, or None

    See Also
    --------
    dkl.LowRankKernelRegressor : The same problem by faster methods, and by the paper's.
    sklearn.linear_model.Lasso : Its other form, on the kernel's columns.

    References
    ----------
    Y. Nesterov, Efficiency of coordinate descent methods on huge-scale optimization problems, CORE discussion paper, 2010;
    SIAM J. Optimization 22, 2012.
    P. Machart, T. Peel, L. Ralaivola, S. Anthoine, H. Glotin, Stochastic low-rank kernel learning for regression, ICML 2011.
    https://hal.science/hal-00657837

    Examples
    --------
    >>> import numpy as np
    >>> from dkl.baselines import FirstOrderRegressor
    >>> X = np.linspace(0, 3, 40)[:, None]
    >>> model = FirstOrderRegressor(gamma=1.0, n_columns=10, n_jobs=1, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> bool(abs(model.predict([[1.0]])[0] - np.sin(1.0)) < 0.1)
    True
    """

    SETTINGS = FirstOrderRegressorSettings

    def __init__(
        self,
        kernel: UserKernel = "rbf",
        *,
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        nu: float = 0.1,
        lam: float = 1.0,
        n_columns: int = 1000,
        columns: object = "uniform",
        solver: str = "projected",
        fit_intercept: bool = True,
        tol: float = 1e-3,
        max_iter: int = 1000,
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
        self.nu = nu
        self.lam = lam
        self.n_columns = n_columns
        self.columns = columns
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: UserRows, y: UserLabels, sample_weight: UserWeights = None) -> FirstOrderRegressor:
        """Learn from rows X (n, d) and targets y (n,) or (n, T).

        Warns with ConvergenceWarning where a relative gap is above `tol` at the end.

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
        rows, targets, weights, offsets = self._checked(X, y, sample_weight)
        passed = make_pass(rows, targets, weights, settings, self._session(), given=self._given_columns)
        solver = WeightDescent(self.solver, self.tol, self.max_iter, settings.seed)
        with blas_threads_for(len(passed.candidates.scale)):
            # Output by output: the weights mu of the columns are each output's own, as its nu sum mu is.
            found = [solver.solve(lasso) for lasso in output_problems(passed.shared, float(self.lam), float(self.nu))]
        w = np.array([one.weights for one in found])
        self._set_weights(passed.candidates, w, passed.shared.intercepts(w) + offsets)
        self._keep(found)
        worst = max(one.evaluation.relative_gap for one in found)
        if not worst <= self.tol:
            text = f"the relative gap is {worst:.3g}, above tol={self.tol:g}: raise max_iter or tol"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def _keep(self, found: list[Solution]) -> None:
        """Set the attributes of the solutions: numbers where y is (n,), else one an output."""
        evaluations = [one.evaluation for one in found]
        for name, values in (
            ("objective_", [e.objective for e in evaluations]),
            ("relative_gap_", [e.relative_gap for e in evaluations]),
            ("n_iter_", [one.n_iter for one in found]),
        ):
            setattr(self, name, values[0] if self._is_flat else np.array(values))
        self.history_ = [one.history for one in found]


Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
ROUNDING = 1e-14
"""Share of F by which rounding may keep it above its quadratic bound."""


@dataclass(frozen=True)
class WeightedProblem:
    """Problem (14) with B (M, M) in memory."""

    lasso: ColumnLasso
    B: Matrix

    @classmethod
    def of(cls, lasso: ColumnLasso) -> WeightedProblem:
        """Return the problem of a lasso on columns whose Gram matrix is in memory."""
        rows, places = lasso.gram.rows(np.arange(lasso.n_columns))
        return cls(lasso, rows[places])

    def correlations(self, mu: Vector) -> Vector:
        """Return a = C'K^-1 y (M,) at the weights mu."""
        root, S = self._scaled(mu)
        if not S.size:
            return self.lasso.cross / self.lasso.lam
        # By the identity of Woodbury on the columns in use: |S| x |S| systems, however many rows there are.
        inner = root * cho_solve(self._factor(root, S), root * self.lasso.cross[S])
        return np.asarray((self.lasso.cross - inner @ self.B[S]) / self.lasso.lam)

    def products(self, mu: Vector) -> Matrix:
        """Return P = C'K^-1 C (M, M) at the weights mu, in columns' order."""
        root, S = self._scaled(mu)
        if not S.size:
            return np.array(self.B / self.lasso.lam, order="F")
        across = root[:, None] * self.B[S]
        return np.array((self.B - across.T @ cho_solve(self._factor(root, S), across)) / self.lasso.lam, order="F")

    def value(self, mu: Vector, a: Vector) -> float:
        """Return F(mu), given a: lambda y'K^-1 y = y'y - b'(mu * a)."""
        return self.lasso.square - float(self.lasso.cross @ (mu * a)) + self.lasso.nu * float(mu.sum())

    def _scaled(self, mu: Vector) -> tuple[Vector, NDArray[np.intp]]:
        S = np.flatnonzero(mu)
        return np.sqrt(mu[S]), S

    def _factor(self, root: Vector, S: NDArray[np.intp]) -> tuple[Matrix, bool]:
        """Factor lambda I + R B_SS R, R = diag(root): no eigenvalue is below lambda."""
        system = root[:, None] * self.B[np.ix_(S, S)] * root
        system.flat[:: len(S) + 1] += self.lasso.lam
        return cho_factor(system, lower=True)


@dataclass(frozen=True)
class WeightDescent:
    """Solver of (14) from mu = 0 to a relative gap of `tol`, in at most `max_iter` passes over the coordinates.

    rule: "coordinate" or "projected". A pass, which has a row in the history, is M derivatives: M steps along coordinates that are
    drawn by `seed`, or one step along all.
    """

    rule: str
    tol: float = 1e-6
    max_iter: int = 1000
    seed: int = 0

    def solve(self, lasso: ColumnLasso, *, watch: Watch | None = None) -> Solution:
        """Return the columns' weights w = mu * a of the last pass."""
        watch, problem = watch or Watch(), WeightedProblem.of(lasso)
        advance = _coordinate_passes(problem, self.seed) if self.rule == "coordinate" else _projected_steps(problem)
        mu, done = np.zeros(lasso.n_columns), 0
        while True:
            a = problem.correlations(mu)
            w = mu * a
            found = lasso.evaluate(w)
            row = history_row(done * lasso.n_columns, mu, found) | {"objective": problem.value(mu, a)}
            solved, at_limit = found.relative_gap <= self.tol, done >= self.max_iter
            outcome = verdict(watch.record(row), solved=solved, at_limit=at_limit)
            if outcome is not None:
                return Solution(w, found, done, outcome, history=watch.history)
            mu, done = advance(mu, a), done + 1


def _coordinate_passes(problem: WeightedProblem, seed: int) -> Callable[[Vector, Vector], Vector]:
    """Return a function that makes a pass of Nesterov's method, from (mu, a) to the next mu."""
    lasso, stream = problem.lasso, np.random.default_rng(seed)
    constants = 2 * lasso.square * lasso.gram.diagonal**2 / lasso.lam**2
    # A column of zeros has no curvature to divide by, and no use for a weight.
    movable = np.flatnonzero(constants > 0)

    def advance(mu: Vector, a: Vector) -> Vector:
        # P afresh for each pass: rank-one updates gather rounding errors.
        mu, a, P = mu.copy(), a.copy(), problem.products(mu)
        for m in stream.choice(movable, size=lasso.n_columns) if movable.size else ():
            change = max(mu[m] - (lasso.nu - lasso.lam * a[m] ** 2) / constants[m], 0.0) - mu[m]
            if change == 0.0:
                continue
            mu[m] += change
            share, column = change / (1 + change * P[m, m]), P[:, m].copy()
            a -= share * a[m] * column
            P = dger(-share, column, column, a=P, overwrite_a=1)  # in place, as P is in columns' order
        return mu

    return advance


def _projected_steps(problem: WeightedProblem) -> Callable[[Vector, Vector], Vector]:
    """Return a function that makes a step of projected gradients, from (mu, a) to the next mu."""
    lasso, curvature = problem.lasso, 0.0

    def advance(mu: Vector, a: Vector) -> Vector:
        nonlocal curvature
        slopes, value = lasso.nu - lasso.lam * a**2, problem.value(mu, a)
        # The largest entry of the Hessian's diagonal at 0 to begin with.
        curvature = curvature or float((2 * a**2 * lasso.gram.diagonal).max()) or 1.0
        while True:
            new = np.maximum(mu - slopes / curvature, 0.0)
            change = new - mu
            bound = value + float(slopes @ change) + 0.5 * curvature * float(change @ change)
            if not problem.value(new, problem.correlations(new)) > bound + ROUNDING * lasso.square:
                break
            curvature *= 2
        # Halved, so that the next step may be longer; doubling finds back what is needed.
        curvature /= 2
        return new

    return advance

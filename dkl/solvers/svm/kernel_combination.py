"""ONK with several kernels, the extension that Liu et al. 2009 name as future work: K = sum_k theta_k K_k is learned too,

    min over theta >= 0, sum theta = 1, and G psd, max over alpha in P   2 e'alpha - alpha'Y G Y alpha + rho |G - K|_F^2.

With G as in (5) this is min over theta of J(theta) = -min_alpha f_theta(alpha): convex, with gradient -q at the maximizer
alpha, q_k = alpha'Y K_k Y alpha (as in A. Rakotomamonjy, F. Bach, S. Canu, Y. Grandvalet, SimpleMKL, JMLR 9, 2008). For
any theta and alpha

    J(theta) - min J  <=  gap of f_theta at alpha  +  max_k q_k - theta'q,

which is what a row says and the solver stops by. The base kernels are taken with trace n, or the sum would say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, root

from dkl.linalg.kernels.kernel_operators import KernelOperator, Vector
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interface import FeasiblePoint, SVMProblem, SVMSolution
from dkl.solvers.watch import Outcome, Row, Watch, verdict

INNER = 0.1
"""Accuracy of the binary problem at each theta, as a share of the accuracy wanted."""
SMALLEST = 1e-12
"""Least relative gap that is asked of the binary problem."""
BALANCING = 50
"""Evaluations for equal q_k, of which each Jacobian takes as many as there are kernels."""
MULTIPLICATIVE = 200
"""Most multiplicative steps of theta."""


class AnyKernelSVM(SVMProblem, Protocol):
    """A problem whose K can be replaced."""

    def with_kernel(self, kernel: KernelOperator) -> Self:
        """Return the same problem with another K."""


@dataclass
class ScaledKernel:
    """scale * K."""

    of: KernelOperator
    scale: float

    @property
    def n(self) -> int:
        """Return the number of rows of K."""
        return self.of.n

    def times(self, v: Vector) -> Vector:
        """Return scale * K v."""
        return self.scale * self.of.times(v)

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these columns (n, k) of scale * K."""
        return self.scale * self.of.columns(chosen)

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these rows and columns (k, k) of scale * K."""
        return self.scale * self.of.block(chosen)


@dataclass
class CombinedKernel:
    """sum_k theta_k K_k by the products of its parts; those with theta_k = 0 cost nothing."""

    parts: Sequence[KernelOperator]
    theta: Vector

    @property
    def n(self) -> int:
        """Return the number of rows of the sum."""
        return self.parts[0].n

    def times(self, v: Vector) -> Vector:
        """Return the sum's product with v."""
        return self._sum(lambda part: part.times(v))

    def columns(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these columns (n, k) of the sum."""
        return self._sum(lambda part: part.columns(chosen))

    def block(self, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return these rows and columns (k, k) of the sum."""
        return self._sum(lambda part: part.block(chosen))

    def _sum(self, of: Any) -> Any:
        return sum(share * of(part) for share, part in zip(self.theta, self.parts, strict=True) if share > 0)


@dataclass(frozen=True)
class CombinedSolution:
    """theta (k,), the machine at it, the gap of the whole, and a row for each theta with a smaller gap than those before.

    n_tried, products: thetas tried, and products with K at all of them.
    """

    theta: Vector
    solution: SVMSolution
    gap: float
    outcome: Outcome
    history: list[Row] = field(repr=False)
    n_tried: int = 0
    products: int = 0

    @property
    def relative_gap(self) -> float:
        """Return the gap over -f, infinite where f >= 0, as at alpha = 0."""
        objective = self.solution.point.objective
        return self.gap / -objective if objective < 0 else float("inf")


def combine(
    problem: AnyKernelSVM, parts: Sequence[KernelOperator], solver: Accelerated, *, watch: Watch | None = None
) -> CombinedSolution:
    """Find theta and alpha together, to the solver's relative gap; a row for each theta with a smaller gap."""
    watch = watch or Watch()
    # More accurate than what J is asked for, so that its error does not stop the outer search.
    inner = replace(solver, tol=max(INNER * solver.tol, SMALLEST))
    search = _WeightSearch(problem, parts, inner, solver.tol, watch)
    start = np.full(len(parts), 1.0 / len(parts))
    try:
        minimize(
            search.value, start, jac=True, method="SLSQP", bounds=[(0.0, 1.0)] * len(parts),
            constraints={"type": "eq", "fun": lambda theta: theta.sum() - 1.0, "jac": np.ones_like},
            options={"ftol": 1e-15, "maxiter": 100},
        )  # fmt: skip
        # These steps end where J is flat to rounding, and its gradient not yet.
        search.balance()
        # Slower, but they never leave the simplex.
        for _ in range(MULTIPLICATIVE):
            # A fixed point has equal q_k on the support, as the optimum has.
            theta = search.best.theta * np.sqrt(np.maximum(search.best_q, 0.0))
            search.value(theta / theta.sum())
    except _Done:
        pass
    best, limit = search.best, Outcome.ITERATION_LIMIT
    outcome = search.outcome or (limit if best.solution.outcome is limit else Outcome.STALLED)
    return replace(best, outcome=outcome, history=watch.history, n_tried=search.tried, products=search.products)


def point_of_sum(
    problem: SVMProblem, parts: Sequence[KernelOperator], theta: Vector, alpha: Vector
) -> tuple[FeasiblePoint, float]:
    """Return the machine's point at alpha with K = sum_k theta_k K_k, and the gap of the whole.

    The gap is the point's and max_k q_k - theta'q. One product with each kernel, also with those that have no share: their q_k counts.
    """
    signed = problem.y * alpha
    products = np.array([part.times(signed) for part in parts])
    point = problem.at(alpha, problem.y * (theta @ products))
    return point, point.gap + weights_gap(products @ signed, theta)


def weights_gap(q: Vector, theta: Vector) -> float:
    """Return max_k q_k - theta'q (see above): what other weights would gain, to first order; not below 0."""
    return max(float(q.max() - theta @ q), 0.0)


class _Done(Exception):
    """The gap is small enough, or the watch has ended the run."""


class _WeightSearch:
    """J and its gradient, with warm starts from one theta to the next; remembers the least gap."""

    best: CombinedSolution
    best_q: Vector

    def __init__(
        self,
        problem: AnyKernelSVM,
        parts: Sequence[KernelOperator],
        solver: Accelerated,
        tol: float,
        watch: Watch,
    ) -> None:
        self.problem, self.parts, self.solver, self.tol, self.watch = problem, parts, solver, tol, watch
        self.alpha: Vector | None = None
        self.tried, self.products = 0, 0
        self.outcome: Outcome | None = None

    def value(self, theta: Vector) -> tuple[float, Vector]:
        """Return (J, its gradient) at theta, normalized; raises _Done at the end."""
        # SLSQP may leave the simplex by rounding, and a negative weight is no kernel.
        theta = np.clip(theta, 0.0, None)
        theta = theta / theta.sum()
        problem = self.problem.with_kernel(CombinedKernel(self.parts, theta))
        # Warm from the last theta: weights change little from one to the next.
        solution = self.solver.solve(problem, self.alpha, watch=self.watch.quiet())
        self.alpha = solution.point.alpha
        signed = problem.y * self.alpha
        q = np.array([float(signed @ part.times(signed)) for part in self.parts])
        gap = solution.point.gap + weights_gap(q, theta)
        tried = CombinedSolution(theta, solution, gap, Outcome.ITERATION_LIMIT, [])
        self.tried, self.products = self.tried + 1, self.products + solution.products
        is_best = not hasattr(self, "best") or gap < self.best.gap
        if is_best:
            self.best, self.best_q = tried, q
        # Not each theta: thousands of machines of a hundred each would hold more memory than their kernels.
        ended = self._record(tried) if is_best or not np.isfinite(gap) else self.watch.outcome
        self.outcome = verdict(ended, solved=self.best.relative_gap <= self.tol)
        if self.outcome is not None:
            raise _Done
        return -solution.point.objective, -q

    def balance(self) -> None:
        """Equalize q_k among the kernels of the best theta's support, as at the optimum; the others stay 0."""
        support = np.flatnonzero(self.best.theta > 0.0)
        if support.size < 2:
            return
        *free, last = support.tolist()

        def apart(shares: Vector) -> Vector:
            theta = np.zeros(len(self.parts))
            theta[free], theta[last] = shares, 1.0 - shares.sum()
            q = -self.value(theta)[1]
            return np.asarray(q[free] - q[last])

        root(apart, self.best.theta[free], options={"maxfev": BALANCING})

    def _record(self, tried: CombinedSolution) -> Outcome | None:
        row: dict[str, object] = {
            "iteration": self.tried,
            "objective": tried.solution.point.objective,
            "gap": tried.gap,
            "relative_gap": tried.relative_gap,
            "theta": tried.theta.tolist(),
            "products": tried.solution.products,
        }
        return self.watch.record(row)

"""Many lassos, or ridges, on the same columns: several outputs, a path over nu or lambda, the folds of cross-validation.

None of them passes over the rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack

from dkl.linalg.lasso import Vector
from dkl.linalg.rows.column_moments import mirrored
from dkl.resources import one_blas_thread
from dkl.solvers.regression.active_set import Lasso, Solution, Solver
from dkl.solvers.watch import Outcome, Watch

NU_RATIO = 1e-9
"""Ratio of a path's least nu to the largest useful one, by default."""
LEAST_RATIO = float(np.finfo(float).eps ** 2)
"""Least ratio of nu to the largest: kappa = sqrt(lambda nu) is then a rounding of the correlations."""
CV_WAITING = 8
"""Values of nu beyond the best so far, after which cross-validation looks no further down."""
BETTER = 1e-4
"""Least decrease of the error that counts, as a share of it."""


class RowFold(Protocol):
    """Some rows to learn from, and others to be wrong on. T outputs, M columns."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return (T, M), the numbers of outputs and columns."""

    @property
    def variances(self) -> Vector:
        """Return the variances (T,) of the targets."""

    def problems(self, nu: float) -> Sequence[Any]:
        """Return the lasso of each output."""

    def error(self, weights: NDArray[np.float64]) -> Vector:
        """Return the mean squared errors (T,) on the other rows."""


def nu_path(nu_max: float, count: int) -> Vector:
    """Return `count` values from the largest useful nu down, in equal ratios; none is 0, however small nu_max."""
    largest = max(nu_max, float(np.finfo(float).tiny) / NU_RATIO)
    return np.geomspace(largest, largest * NU_RATIO, count)


def continued(nus: Vector) -> Iterator[float]:
    """Yield a descending path's values, then more of them in its last ratio, as long as rounding allows."""
    yield from map(float, nus)
    # In the ratio of its last values: the path continues evenly.
    ratio = float(nus[-1] / nus[-2]) if len(nus) > 1 else NU_RATIO
    least = max(float(nus[0]) * LEAST_RATIO, float(np.finfo(float).tiny))
    nu = float(nus[-1])
    while (nu := nu * ratio) >= least:
        yield nu


def waiting_behind(nus: Vector) -> int:
    """Return how many values beyond its best a path tries after its end: a decade, at most CV_WAITING."""
    decades = np.log10(nus[-2] / nus[-1]) if len(nus) > 1 else -np.log10(NU_RATIO)
    # Less a little, so that half decades are 2 values, however they are rounded.
    return int(np.clip(np.ceil(1 / decades - 1e-6), 1, CV_WAITING))


def solve_outputs(
    problems: Sequence[Lasso],
    solver: Solver,
    starts: Sequence[Vector | None] | None = None,
    *,
    threads: int = 1,
    watch: Watch | None = None,
) -> list[Solution]:
    """Solve the lasso of each output on `threads`; all must share a Gram matrix that is in memory.

    Each output is a stage of the watch, whose rows say which one: `output`.
    """
    watch = watch or Watch()
    starts = [None] * len(problems) if starts is None else starts
    parts = [watch.stage(output=output) for output in range(len(problems))]

    def solve(problem: Lasso, start: Vector | None, part: Watch) -> Solution:
        return solver.solve(problem, start, watch=part)

    if threads == 1 or len(problems) == 1:
        return [solve(*work) for work in zip(problems, starts, parts, strict=True)]
    # BLAS would compete with our own threads: one thread each.
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(solve, problems, starts, parts))


def solve_path(
    problems_at: Callable[[float], Sequence[Lasso]],
    nus: Vector,
    solver: Solver,
    *,
    threads: int = 1,
    watch: Watch | None = None,
) -> list[list[Solution]]:
    """Return [[solution of each output] for each nu], each started from the one before; a row each nu.

    problems_at(nu): the lasso of each output. Once the watch has ended the run, the weights so far stand for the nus to come,
    each with the gap that they have there.
    """
    watch = (watch or Watch()).stage("path", of=len(nus))
    found: list[list[Solution]] = []
    for place, nu in enumerate(nus):
        # The weights at the nu before are near to those at this one.
        starts = [solution.weights for solution in found[-1]] if found else None
        found.append(solve_outputs(problems_at(float(nu)), solver, starts, threads=threads, watch=watch.quiet()))
        # The worst output counts, so that a small one does not hide a large gap.
        worst = max(solution.evaluation.relative_gap for solution in found[-1])
        active = max(int(np.count_nonzero(solution.weights)) for solution in found[-1])
        watch.record({"iteration": place + 1, "nu": float(nu), "relative_gap": worst, "n_active": active})
    return found


@dataclass(frozen=True)
class CrossValidation:
    """Held-out mean squared errors and numbers of active columns, by nu, fold and output (k, K, T).

    `best` is an index of `nus`; weights (K, T, M): those there without each fold; outcome: SOLVED if the path was tried as far as
    is worth it; edge: why the path did not continue although its last nu was the best, STALLED for rounding or
    ITERATION_LIMIT, or None where a lower nu would have been no better."""

    nus: Vector
    errors: NDArray[np.float64]
    n_active: NDArray[np.int64]
    best: int
    weights: NDArray[np.float64] | None = field(default=None, repr=False)
    outcome: Outcome = Outcome.SOLVED
    edge: Outcome | None = None

    @property
    def nu(self) -> float:
        """Return the best nu that was tried."""
        return float(self.nus[self.best])


def mean_variances(folds: Sequence[RowFold]) -> Vector:
    """Return the variances (T,) > 0 by which errors of different outputs are weighed."""
    return np.asarray(np.maximum(np.mean([fold.variances for fold in folds], axis=0), np.finfo(float).tiny))


def cross_validate(
    folds: Sequence[RowFold], nus: Vector, solver: Solver, *, threads: int = 1, watch: Watch | None = None
) -> CrossValidation:
    """Find the nu of a descending path of the least held-out error, outputs weighed by their variance.

    A row each nu. The path ends `CV_WAITING` values behind the best. From the end of `nus` it continues until the best is a decade
    behind.
    """
    watch, variances = watch or Watch(), mean_variances(folds)
    # Each fold continues from its own weights of the nu before.
    weights = [np.zeros(fold.shape) for fold in folds]
    errors: list[NDArray[np.float64]] = []
    active: list[NDArray[np.int64]] = []
    means: list[float] = []
    best, chosen = 0, np.array(weights)
    outcome, limit = Outcome.SOLVED, Outcome.STALLED  # of a path that is used up: rounding

    def solve(k: int, nu: float) -> tuple[Outcome, Vector]:
        solutions = solve_outputs(folds[k].problems(nu), solver, list(weights[k]), watch=watch.quiet())
        weights[k] = np.array([solution.weights for solution in solutions])
        ended = next((one.outcome for one in solutions if not one.outcome.converged), Outcome.SOLVED)
        return ended, folds[k].error(weights[k])

    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for place, nu in enumerate(continued(nus)):
            ended, found = zip(*pool.map(solve, range(len(folds)), [nu] * len(folds)), strict=True)
            unsolved = next((one for one in ended if not one.converged), None)
            # At the first nu there must be a result, solved or not.
            if errors and unsolved is not None:
                outcome, limit = watch.outcome or outcome, unsolved
                break  # further down rounding, or max_iter, would choose, not the data
            errors.append(np.array(found))
            active.append(np.array([np.count_nonzero(w, axis=1) for w in weights]))
            # Outputs are divided by their variance, or the one of the largest scale would choose nu alone.
            means.append(float((errors[-1].mean(axis=0) / variances).mean()))
            # A gain below this share goes to the larger nu, which has fewer columns.
            is_better = place == 0 or means[place] < means[best] * (1 - BETTER)
            if is_better:
                best, chosen = place, np.array(weights)
            stop_reason = watch.stage("cv", of=max(len(nus), place + 1)).record(
                {"iteration": place + 1, "nu": nu, "error": means[-1]}
            )
            if stop_reason is not None:
                outcome = stop_reason
                break
            if place - best >= (CV_WAITING if place < len(nus) - 1 else waiting_behind(nus)):
                break
    # Beyond the given nus too, where the path was continued.
    tried = np.array([nu for nu, _ in zip(continued(nus), errors, strict=False)])
    edge = limit if outcome.converged and best == len(errors) - 1 else None
    return CrossValidation(tried, np.array(errors), np.array(active), best, chosen, outcome, edge)


# Starts for the lassos of several outputs from one shared inverse: they differ in b = C'y alone.
#
# Given the active set S and signs s, the optimum solves B_SS w_S = b_S - kappa s. With H = B^-1 at hand that costs what
# the columns Z outside S do: v = b - kappa s (0 on Z),
#
#     H_ZZ nu = (H v)_Z,    w = H (v - nu on Z),    c_Z'(y - C w) = nu
#
# Weights of the wrong sign leave S, columns with |nu| > kappa enter, all at once (the primal-dual active set of M.
# Hintermueller, K. Ito, K. Kunisch, SIAM J. Optim. 13, 2003). That ends after some ten rounds or not at all, and pays
# where Z is small: an output without a start begins at zero.

MOST_ROUNDS = 20
"""Most rounds of the primal-dual active set."""
MOST_OUTSIDE = 0.75
"""Share of the columns outside S from which on a start costs as much as what it saves."""


class OutputLasso(Lasso, Protocol):
    """The lasso of one output."""

    @property
    def cross(self) -> Vector:
        """Return (M,) b = C'y."""


def starts_of(problems: Sequence[OutputLasso], B: NDArray[np.float64], *, threads: int = 1) -> list[Vector | None]:
    """Return weights (M,) to start each problem at, or None, for problems that share B (M, M). O(M^3)."""
    H = inverse(B)
    if H is None:
        return [None] * len(problems)
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda problem: start_of(problem, H), problems))


def inverse(B: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return H (M, M), or None where B is singular to rounding."""
    # B is copied here, as other outputs share it.
    factor, failed = lapack.dpotrf(B, lower=0)
    if failed:
        return None
    found, failed = lapack.dpotri(factor, lower=0, overwrite_c=1)
    return None if failed or not np.isfinite(found).all() else mirrored(np.ascontiguousarray(found))


def start_of(problem: OutputLasso, H: NDArray[np.float64]) -> Vector | None:
    """Return the optimum, but for rounding; None if the rounds do not end, or lead to few columns."""
    # H b is the least-squares solution, whose signs are the first guess of the support.
    kappa, free = problem.kappa, H @ problem.cross
    signs, inside = np.sign(free), np.ones(len(free), bool)
    for _ in range(MOST_ROUNDS):
        if np.count_nonzero(~inside) > MOST_OUTSIDE * len(free):
            return None
        w, at = _restricted(H, free - kappa * (H @ np.where(inside, signs, 0.0)), inside)
        # Weights against their sign contradict the optimality conditions: they leave.
        leaving = inside & (w * signs <= 0)
        entering = np.abs(at) > kappa
        if not (leaving | entering).any():
            left = np.where(inside, problem.evaluate(w).correlations - kappa * signs, 0.0)
            return w + _restricted(H, H @ left, inside)[0]  # corrected by its own residual
        # All at once, as the primal-dual active set has it.
        inside = (inside & ~leaving) | entering
        signs = np.where(entering, np.sign(at), signs)
    return None


def _restricted(
    H: NDArray[np.float64], unrestricted: Vector, inside: NDArray[np.bool_]
) -> tuple[Vector, NDArray[np.float64]]:
    """Return (w, nu): `unrestricted` H v with w made 0 outside; nu: correlations left there, 0 inside."""
    outside, at = np.flatnonzero(~inside), np.zeros(len(inside))
    if not outside.size:
        return unrestricted, at
    # The small block of the inverse is positive definite whenever B is.
    factor = (np.linalg.cholesky(H[np.ix_(outside, outside)]), True)
    at[outside] = cho_solve(factor, unrestricted[outside], check_finite=False)
    w = unrestricted - H @ at
    w[outside] = 0.0
    return w, at


# -- ridge -------------------------------------------------------------------------------------------------------------
# A ridge's lambda by cross-validation, along a path from where it hides everything down to rounding.

RATIO = 10**-0.5
"""Ratio of each lambda to the one before."""
WAITING = 4
"""Values beyond the best so far, after which the path looks no further: two decades."""

ROUNDING = 1e-10
"""Decrease of the error, as a share of the variance, that may be rounding."""


class RidgeFoldProblem(Protocol):
    """Some rows to learn from, and others to be wrong on."""

    def error(self, lam: float) -> Vector | None:
        """Return the mean squared errors (T,) on the other rows; None where there is no solution."""


@dataclass(frozen=True)
class RidgePath:
    """Lambdas tried (k,), errors (k, K, T) on the rows held out, and the place of the best in `lams`."""

    lams: Vector
    errors: NDArray[np.float64]
    best: int

    @property
    def lam(self) -> float:
        """Return the best lambda that was tried."""
        return float(self.lams[self.best])


def lam_path(weight: float) -> Vector:
    """Return lambdas from the sum of the sample weights down to its rounding.

    At the first one, half of what the first direction can explain is lost.
    """
    count = int(np.log(np.finfo(float).eps) / np.log(RATIO))
    return np.asarray(float(weight) * RATIO ** np.arange(count + 1), np.float64)


def validate_ridge(
    folds: Sequence[RidgeFoldProblem], lams: Vector, variances: Vector, *, threads: int = 1, watch: Watch | None = None
) -> RidgePath | None:
    """Find the lambda of a descending path with the least error, outputs weighed by `variances` (T,).

    A row each lambda. None where there is no solution at the first, or the watch has ended the run.
    """
    watch = watch or Watch()
    errors: list[NDArray[np.float64]] = []
    means: list[float] = []
    best = 0
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for place, lam in enumerate(lams):
            # Folds are solved side by side, each with its own factorization.
            found = list(pool.map(lambda fold, lam=lam: fold.error(float(lam)), folds))
            if any(one is None for one in found):
                break  # further down rounding would choose
            errors.append(np.array(found))
            means.append(float((errors[-1].mean(axis=0) / variances).mean()))
            if means[place] < means[best] * (1 - BETTER) - ROUNDING:
                best = place
            stop_reason = watch.record({"iteration": place + 1, "lam": float(lam), "error": means[-1]})
            if stop_reason is not None:
                return None
            if place - best >= WAITING:
                break
    if not errors:
        return None
    return RidgePath(np.asarray(lams[: len(errors)], float), np.array(errors), best)

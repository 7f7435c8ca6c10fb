"""The low-rank finisher of problem (1): K = V V' at a rank near the optimum's, to a proven relative gap.

A round minimises f(V V') over V (n, r) by nonlinear conjugate gradients, preconditioned for the stiff part of the
Hessian, whose line search is exact because f is a quartic on a line; then it minimises exactly over the r x r mixings
K = Q Y Q' of the columns at hand, a quadratic in Y, which drops superfluous columns; then it computes the certificate.
Where S = L + gamma P_T(K - T) has eigenvalues below zero outside the range of V, their vectors are added as columns
with the exact step, and the next round goes further.

Superfluous rank is what makes first-order methods sublinear here (the Hessian is singular along x e_k' for a column k
that should vanish), so the rank is kept at the optimum's: Burer & Monteiro (2003), Laue (2012), LoRADS (2024).
Memory: 11 arrays of the size of the padded V (V, L V, gradient, previous and preconditioned gradient, direction D, L D,
and the preconditioner's 4), 2 more while L V is computed anew, and the factor that was handed in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg import slab_kernels as kernels
from dkl.problems.certificate import Certificate
from dkl.problems.pairwise_factored import FactoredPairwise, Point
from dkl.solvers.factored_rank import best_mixing, certified, compressed, escaped, without_weak

Array = NDArray[np.float64]
Row = dict[str, Any]
Callback = Callable[[Row], Any]
START_RANK = 16
COARSE = 1e-4  # the first round aims at this gap: it finds the rank
FINER = 0.2  # how much less progress ends the next round
DROP = 0.1  # columns go whose loss raises f by less than this times the progress
PATIENCE = 8  # rounds without a better gap
REFRESH = 20  # iterations after which L V and the residual are computed anew, and the preconditioner's top
POWER_STEPS = 20
WINDOW = 10  # iterations over which progress is judged


@dataclass
class FactoredResult:
    """Where `minimise` ended. outcome: "converged", "iteration limit" or "stopped"."""

    v: Array
    objective: float
    gradient_norm: float
    n_iter: int
    n_products: int
    history: list[Row] = field(repr=False)
    outcome: str
    point: Point = field(repr=False)


def minimise(
    problem: FactoredPairwise,
    v0: Array,
    *,
    tol: float,
    progress: float = 0.0,
    max_iter: int,
    callback: Callback | None = None,
) -> FactoredResult:
    """A stationary point of f(V V') from v0 (padded), by Polak-Ribiere+ conjugate gradients.

    Ends at |gradient| <= tol, or once WINDOW iterations lower f by less than `progress` relative to it.
    """
    first_product = problem.n_products
    point = problem.at(v0)
    precondition = problem.preconditioner(point.v.shape[1])
    precondition.refresh(point.v, POWER_STEPS)
    z, previous = np.empty_like(point.v), np.zeros_like(point.v)
    direction = np.zeros_like(point.v)
    size, line = np.inf, None
    history: list[Row] = []
    lately = [point.objective]
    outcome = "iteration limit"
    for iteration in range(1, max_iter + 1):
        if point.gradient_norm <= tol:
            outcome = "converged"
            break
        precondition.apply(point.v, point.gradient, z)
        new_size = _dot(problem, point.gradient, z)
        # Polak-Ribiere+: the gradient's change in the preconditioner's inner product, forgetting where it would be negative.
        momentum = max(0.0, (new_size - _dot(problem, previous, z)) / size)
        size = new_size
        if _turn(problem, momentum, z, direction, point.gradient) >= 0:
            _turn(problem, 0.0, z, direction, point.gradient)
        line = problem.line(point, direction, line)
        np.copyto(previous, point.gradient)
        problem.move(point, direction, line, line.minimiser()[0])
        if iteration % REFRESH == 0:
            point = problem.at(point.v)
            precondition.refresh(point.v, 2)
        row = {"iteration": iteration, "objective": point.objective, "gradient_norm": point.gradient_norm}
        history.append(row)
        if callback is not None and callback(row) is True:
            outcome = "stopped"
            break
        lately.append(point.objective)
        if len(lately) > WINDOW and lately[-WINDOW - 1] - point.objective <= progress * abs(point.objective):
            outcome = "converged"
            break
    products = problem.n_products - first_product
    return FactoredResult(
        point.v, point.objective, point.gradient_norm, len(history), products, history, outcome, point
    )


def _turn(problem: FactoredPairwise, momentum: float, z: Array, direction: Array, gradient: Array) -> float:
    """direction <- momentum direction - z; its product with the gradient."""
    return float(problem.sum_parts(lambda lo, hi: kernels.turn_rows(lo, hi, momentum, z, direction, gradient)))


def _dot(problem: FactoredPairwise, x: Array, y: Array) -> float:
    return float(problem.sum_parts(lambda lo, hi: kernels.dot_rows(lo, hi, x, y)))


def solve_to_gap(
    laplacian: sparse.csr_array,
    targets: sparse.csr_array,
    gamma: float,
    start: Array | None = None,
    *,
    target_gap: float,
    rank: int | None = None,
    max_rank: int = 64,
    max_rounds: int = 40,
    max_iter: int = 100_000,
    time_limit: float = np.inf,
    threads: int = 1,
    seed: int = 0,
    callback: Callback | None = None,
) -> tuple[Array, Certificate, list[Row], str]:
    """(factor (n, r), its certificate, a row an iteration, outcome) with a proven relative gap <= target_gap.

    start      (n, any rank), compressed to at most `rank`; None starts from random rows on the unit sphere
    rank       to start at, by default 16; afterwards it follows the optimum, up to max_rank
    time_limit in seconds, looked at once an iteration; it alone makes a result depend on the clock
    callback   is called with every row; True ends the run

    A row: iteration, objective, gradient_norm, rank, relative_gap (None where no certificate was computed), products,
    seconds. outcome: "solved", "iteration limit" (rounds, iterations, time or the callback) or "stalled".
    """
    problem = FactoredPairwise(laplacian, targets, gamma, threads=threads)
    try:
        return _Search(problem, target_gap, max_rank, max_iter, time_limit, seed, callback).run(start, rank, max_rounds)
    finally:
        problem.close()


class _Search:
    """The rounds of `solve_to_gap`."""

    def __init__(
        self,
        problem: FactoredPairwise,
        target: float,
        max_rank: int,
        max_iter: int,
        time_limit: float,
        seed: int,
        callback: Callback | None,
    ) -> None:
        self.problem, self.target, self.max_rank = problem, target, max_rank
        self.max_iter, self.time_limit, self.seed, self.callback = max_iter, time_limit, seed, callback
        self.rows: list[Row] = []
        self.began = time.perf_counter()
        self.stopped = False

    def run(self, start: Array | None, rank: int | None, max_rounds: int) -> tuple[Array, Certificate, list[Row], str]:
        rank = min(rank or START_RANK, self.max_rank, self.problem.n)
        factor = self._warm_up(rank) if start is None else compressed(np.asarray(start, float), rank)
        best: tuple[Array, Certificate] | None = None
        progress = 0.1 * max(self.target, COARSE)
        idle = 0
        for _ in range(max_rounds):
            factor = self._minimise(factor, progress)
            factor = best_mixing(self.problem, factor)
            point = self.problem.at(self.problem.padded(factor))
            factor, point = without_weak(self.problem, factor, point, DROP * progress)
            progress *= FINER
            certificate, vectors = certified(self.problem, point, self.target, self.seed)
            self._record(point, factor.shape[1], certificate.relative_gap)
            idle = idle + 1 if best is not None and certificate.relative_gap > 0.9 * best[1].relative_gap else 0
            if best is None or certificate.relative_gap < best[1].relative_gap:
                best = factor, certificate
            if certificate.relative_gap <= self.target:
                return factor, certificate, self.rows, "solved"
            if self.stopped:
                break
            if idle >= PATIENCE:
                return self._ended(best[0], "stalled")
            factor = escaped(self.problem, factor, vectors, self.max_rank)
        assert best is not None
        return self._ended(best[0], "iteration limit")

    def _ended(self, factor: Array, outcome: str) -> tuple[Array, Certificate, list[Row], str]:
        """The best factor, with the most that can be proven of it."""
        point = self.problem.at(self.problem.padded(factor))
        certificate, _ = certified(self.problem, point, self.target, self.seed, last=True)
        self._record(point, factor.shape[1], certificate.relative_gap)
        return factor, certificate, self.rows, "solved" if certificate.relative_gap <= self.target else outcome

    def _warm_up(self, rank: int) -> Array:
        """Random rows on the unit sphere, where K_ii = 1, and a path of gammas up to the problem's."""
        factor = np.random.default_rng(self.seed).standard_normal((self.problem.n, rank))
        factor /= np.linalg.norm(factor, axis=1)[:, None]
        gamma = self.problem.gamma
        for share in (0.01, 0.1):
            self.problem.gamma = share * gamma
            factor = self._minimise(factor, 1e-3)
        self.problem.gamma = gamma
        return factor

    def _minimise(self, factor: Array, progress: float) -> Array:
        rank = factor.shape[1]
        if self.stopped:
            return factor

        def follow(row: Row) -> bool:
            self._log(row["objective"], row["gradient_norm"], rank, None)
            return self.stopped

        left = self.max_iter - len(self.rows)
        result = minimise(
            self.problem, self.problem.padded(factor), tol=0.0, progress=progress, max_iter=left, callback=follow
        )
        self.stopped |= len(self.rows) >= self.max_iter
        return result.v[:, :rank]

    def _record(self, point: Point, rank: int, gap: float) -> None:
        self._log(point.objective, point.gradient_norm, rank, gap)

    def _log(self, objective: float, gradient_norm: float, rank: int, gap: float | None) -> None:
        seconds = time.perf_counter() - self.began
        row = {
            "iteration": len(self.rows) + 1,
            "objective": objective,
            "gradient_norm": gradient_norm,
            "rank": rank,
            "relative_gap": gap,
            "products": self.problem.n_products,
            "seconds": seconds,
        }
        self.rows.append(row)
        self.stopped |= seconds > self.time_limit
        if self.callback is not None and self.callback(row) is True:
            self.stopped = True

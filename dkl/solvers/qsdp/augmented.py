"""A linear objective over the psd cone under linear constraints, by an augmented Lagrangian of a factor K = R R' (Burer & Monteiro 2003).

    L(R; y) = <C, R R'> + sigma/2 sum over s of (<A_s, R R'> - b_s - y_s / sigma)^2

of upper bounds only where the bracket is positive. A round

    1  lowers L by Newton's steps in R: conjugate gradients with the Hessian 2 S D + 2 sigma A*(A(R D' + D R')) R, preconditioned by its
       blocks of rows or, where these serve too little, by a factor; on a line L is a quartic
    2  moves the multipliers to y_s - sigma (<A_s, K> - b_s), by which S(y) R = 0 where L is least
    3  proves a bound by the least eigenvalue of S(y), whose eigenvectors of negative eigenvalues become columns of R, at the best length:
       so a point that is least for its rank alone is left
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.eigen.lowest_by_factor import lowest_pairs
from dkl.resources import one_blas_thread
from dkl.solvers.qsdp.augmented_steps import ColumnPreconditioner, ConstrainedCone, Point, minimized, reduced
from dkl.solvers.qsdp.interface import check_numbers
from dkl.solvers.watch import Outcome, Row, Stall, Watch, verdict

Array = NDArray[np.float64]
RANK, ADDED = 10, 4
"""Columns of a start, at least, and columns that a round adds, at most."""
NOISE = 1e-2
"""Size of the columns of noise that are added to a given start, relative to its rows."""
WEIGHT, HEAVIER, SLOWER, HEAVIEST = 30.0, 3.0, 0.6, 1e6
"""sigma at first, in |<C, K>| / |b|^2; its growth in a round that leaves more than SLOWER of what the constraints lacked, and in all."""
ROUGH, FINE = 0.001, 0.05
"""Share of the last error, and of tol, that a round leaves of the gap."""
OVERLOOKED = 0.2
"""Share of tol that a negative eigenvalue may cost and be left."""
DROPPED = 1e-3
"""Share of tol, of the largest column's square, below which columns are left out."""
LEAVING = 4
"""Newton's steps, at least, from a point that columns were added to."""
INFEASIBLE = 1e-3
"""Infeasibility above which a round without progress looks for a proof that no K is feasible."""
ROOM = 2.0**30
"""Bytes of factors, where none are given."""
IDLE = 8
"""Rounds without a new least error, at most."""


class FactorCertificate(Protocol):
    """Certificate of a factor and multipliers."""

    @property
    def objective(self) -> float:
        """Return <C, K>."""

    @property
    def gap(self) -> float:
        """Return objective - bound."""

    @property
    def relative_gap(self) -> float:
        """Return the relative gap."""

    @property
    def infeasibility(self) -> float:
        """Return |A(K) - b| / |b|."""

    @property
    def error(self) -> float:
        """Return the larger of the two."""


@dataclass(frozen=True)
class LinearSDPSolution:
    """Solution: K = factor factor', factor (n, r) of orthogonal columns, largest first; y = dual (p,), and their certificate.

    n_iter: rounds; n_newton: Newton's steps in all; face: its size m, where the bound is proven for kernels on a face alone.
    """

    outcome: Outcome
    factor: Array = field(repr=False)
    dual: Array = field(repr=False)
    certificate: Any
    n_iter: int
    n_newton: int
    face: int | None = None


@one_blas_thread()  # the same bits on any machine
def solve_augmented(
    problem: ConstrainedCone,
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    start: Array | None = None,
    room: float = ROOM,
    watch: Watch | None = None,
    seed: int = 0,
    resume_from: LagrangianState | None = None,
    on_state: Callable[[LagrangianState], object] | None = None,
) -> LinearSDPSolution:
    """Solve until relative gap and infeasibility are proven to be at most `tol`; max_iter: rounds at most.

    start (n, k): a factor to start from, feasible or not; columns of noise, by `seed`, join it. room: bytes for factors of matrices
    with the pattern of C and all A_s; where they do not fit Newton's steps take more products, and little is proven of many rows.

    Rows of the history: iteration, objective, gap, relative_gap, infeasibility, rank, newton (its steps so far). on_state: called with the
    state after each row; its arrays are not written to. resume_from: such a state, of which the row was recorded. InputError for invalid
    numbers, and where it is proven that no K meets the constraints.
    """
    check_numbers(tol=tol, max_iter=max_iter)
    watch = Watch() if watch is None else watch
    rounds, iteration, stall = _Rounds(problem, tol, start, room, seed), 0, Stall(IDLE)
    if resume_from is None:
        stop_reason = watch.record(rounds.row(0))
    else:
        rounds.restore(resume_from)
        iteration, stall.idle, stop_reason = resume_from.iteration, resume_from.idle, watch.outcome
    while True:
        if on_state is not None:
            on_state(rounds.state(iteration, stall.idle))
        at_limit, is_solved = iteration >= max_iter, rounds.best.error <= tol
        outcome = verdict(stop_reason, solved=is_solved, at_limit=at_limit, stalled=stall.is_passed)
        if outcome is not None:
            factor, dual, certificate = rounds.best.factor, rounds.best.dual, rounds.best.certificate
            return LinearSDPSolution(outcome, factor, dual, certificate, iteration, rounds.n_newton)
        iteration += 1
        stall.check(rounds.advance())
        stop_reason = watch.record(rounds.row(iteration))


@dataclass(frozen=True)
class CertifiedFactor:
    """Factor (n, r) and multipliers in the problem's own units, with their certificate, whose least eigenvalue is `low`."""

    factor: Array
    dual: Array
    certificate: FactorCertificate
    low: float

    @property
    def error(self) -> float:
        """Return the larger of relative gap and infeasibility."""
        return self.certificate.error

    def row(self, iteration: int, rank: int, newton: int) -> Row:
        """Return the row of a round that came here."""
        found = self.certificate
        return {
            "iteration": iteration, "objective": found.objective, "gap": found.gap, "relative_gap": found.relative_gap,
            "infeasibility": found.infeasibility, "rank": rank, "newton": newton,
        }  # fmt: skip


@dataclass(frozen=True)
class LagrangianState:
    """Checkpoint state after a round; resuming from it is bit-identical.

    factor (n, r) and dual (p,) of the Lagrangian, in units in which |b| and |C| are about 1; best (n, k) and best_dual (p,): of the least
    error so far, `low` its least eigenvalue; error: of the last round; least: Newton's steps of the next, at least; is_by_rows,
    n_slow, is_full, shift and fill: of the preconditioner; idle: rounds without progress.
    """

    factor: Annotated[Array, "sample", "column"] = field(repr=False)
    dual: Annotated[Array, "edge"] = field(repr=False)
    best: Annotated[Array, "sample", "best column"] = field(repr=False)
    best_dual: Annotated[Array, "edge"] = field(repr=False)
    low: float
    error: float
    sigma: float
    infeasibility: float
    least: int
    n_newton: int
    is_by_rows: bool
    n_slow: int
    is_full: bool
    shift: float
    fill: int
    iteration: int
    idle: int


class _Rounds:
    """Rounds of the augmented Lagrangian, in units in which |b| and |C| are about 1."""

    def __init__(self, problem: ConstrainedCone, tol: float, start: Array | None, room: float, seed: int) -> None:
        self.problem, self.tol = problem, tol
        self.scaled, self.k, self.c = problem.in_units()
        self.conditioned = ColumnPreconditioner(self.scaled, room)
        self.may_factor, self.is_dense = self.conditioned.may_factor, self.conditioned.is_dense
        self.R = self._begin(start, np.random.default_rng(seed))
        self.y, self.n_newton = np.zeros(len(problem.b)), 0
        # In units in which constraints weigh, at K = 0, WEIGHT / 2 times what the objective does at the start.
        size = self._size(self.R)
        squares = float(self.scaled.b @ self.scaled.b) or 1.0
        self.sigma = WEIGHT * size / squares
        self.first, self.most, self.least = self.sigma, HEAVIEST * self.sigma, 0
        self.infeasibility = np.inf
        self.last = self.best = self._proven(self.R, self.y, -np.inf)
        self.error = self.last.error

    def state(self, iteration: int, idle: int) -> LagrangianState:
        """Return the state to resume from."""
        best, means = self.best, self.conditioned
        return LagrangianState(
            self.R, self.y, best.factor, best.dual, best.low, self.error, self.sigma, self.infeasibility, self.least, self.n_newton,
            means.is_by_rows, means.n_slow, means.is_full, means.shift, means.fill, iteration, idle,
        )  # fmt: skip

    def restore(self, state: LagrangianState) -> None:
        """Go back to a state."""
        self.R, self.y, self.sigma, self.infeasibility = state.factor, state.dual, state.sigma, state.infeasibility
        self.least, self.n_newton, self.error, means = state.least, state.n_newton, state.error, self.conditioned
        means.is_by_rows, means.n_slow, means.is_full = state.is_by_rows, state.n_slow, state.is_full
        means.shift, means.fill = state.shift, state.fill
        proof = self.problem.certify(state.best, state.best_dual, state.low)
        self.last = self.best = CertifiedFactor(state.best, state.best_dual, proof, state.low)

    def _begin(self, start: Array | None, rng: np.random.Generator) -> Array:
        """Return the start (n, r) in scaled units, with columns of noise."""
        n, scaled = self.problem.n, self.scaled
        width = min(n, RANK)
        if start is None or not start.any():
            R = rng.standard_normal((n, width)) / np.sqrt(width)
            return scaled.projected(R)
        R = reduced(scaled.projected(start / np.sqrt(self.k)), 0.0)[:, :width]
        more = min(n, max(width, R.shape[1] + ADDED)) - R.shape[1]
        noise = NOISE * np.sqrt(np.sum(R * R) / n / max(more, 1)) * rng.standard_normal((n, more))
        return scaled.projected(np.concatenate([R, noise], axis=1))

    def _size(self, R: Array) -> float:
        """Return the size of the objective at R, not 0."""
        # An objective may be 0: then a share of the trace takes its place.
        square = float(np.sum(R * R))
        return max(abs(float(np.sum((self.scaled.C @ R) * R))), 1e-3 * square, 1e-300)

    def row(self, iteration: int) -> Row:
        """Return the row of the last round."""
        return self.last.row(iteration, self.R.shape[1], self.n_newton)

    def advance(self) -> bool:
        """Do a round; return whether its error is the least so far."""
        scaled, size = self.scaled, self._size(self.R)
        goal = max(FINE * self.tol, ROUGH * min(1.0, self.error)) * size
        point, steps, is_least = minimized(scaled, self.R, self.y, self.sigma, goal, self.conditioned, self.least)
        self.n_newton += steps
        y = point.dual
        # The larger sigma, the more the smallest columns move multipliers.
        R = reduced(point.R, DROPPED * self.tol * self.first / self.sigma)
        size, trace = max(self._size(R), abs(float(scaled.b @ y))), float(np.sum(R * R))
        # A negative eigenvalue takes its size times the largest trace from the bound; of C = -I, times K's own.
        aim = OVERLOOKED * self.tol * size / (trace if scaled.is_variance else max(scaled.trace, trace))
        S = scaled.slack(y)
        low, values, vectors = lowest_pairs(
            S, 2 * ADDED, aim, is_centered=scaled.is_centered, may_factor=self.may_factor, is_dense=self.is_dense
        )
        self.last = self._proven(R, y, low)
        self.error = self.last.error
        is_better = self.last.error < self.best.error
        if is_better:
            self.best = self.last
        # Multipliers move where L is least, or rounding ends all progress; where steps were too few it is lowered further.
        if is_least or not steps:
            self.y = y
            before, self.infeasibility = self.infeasibility, scaled.infeasibility(scaled.images(R))
            is_slow = self.infeasibility > SLOWER * before
            if is_slow and self.infeasibility > INFEASIBLE:
                self._refuse_infeasible()
            if is_slow and self.infeasibility > FINE * self.tol and self.sigma < self.most:
                self.sigma *= HEAVIER
        self.R = self._escaped(R, vectors[:, values < -aim][:, :ADDED])
        return is_better

    def _refuse_infeasible(self) -> None:
        """Raise InputError where the multipliers prove that no K with the problem's bound on its trace meets the constraints."""
        scaled, value = self.scaled, float(self.scaled.b @ self.y)
        if value <= 0:
            return
        against = scaled.slack(self.y, with_cost=False)
        low, _, _ = lowest_pairs(
            against,
            1,
            ROUGH * value / scaled.trace,
            is_centered=scaled.is_centered,
            may_factor=self.may_factor,
            is_dense=self.is_dense,
        )
        # Of a feasible K, 0 >= b'y + low tr(K).
        if value + min(0.0, low) * scaled.trace > FINE * value:
            raise InputError(
                "no kernel meets all constraints", where="constraints", got=f"multipliers that prove it, after {self.n_newton} steps",
                wanted="constraints that some psd matrix meets", remedy="correct or leave out those that contradict each other",
            )  # fmt: skip

    def _proven(self, R: Array, y: Array, lowest: float) -> CertifiedFactor:
        factor, dual = reduced(R * np.sqrt(self.k), 0.0), y * self.c
        low = float(self.c * lowest)
        return CertifiedFactor(factor, dual, self.problem.certify(factor, dual, low), low)

    def _escaped(self, R: Array, vectors: Array) -> Array:
        """Return R with columns along `vectors` (n, k), each of the length that lowers L most."""
        point = Point.of(self.scaled, R, self.y, self.sigma)
        shifted, columns = point.shifted, []
        for v in self.scaled.projected(vectors).T[:, :, None]:
            image = self.scaled.images(v)
            on = np.where(self.scaled.is_upper, np.maximum(shifted, 0.0), shifted)
            slope = float(np.sum((self.scaled.C @ v) * v)) + self.sigma * float(on @ image)
            bend = self.sigma * float(image @ image)
            # Along R R' + t v v' L is a quadratic in t, least at this square of v's length.
            square = -slope / bend if bend > 0 else 0.0
            if square > 0:
                columns.append(np.sqrt(square) * v)
                shifted = shifted + square * image
        self.least = LEAVING if columns else 0
        # One order of memory for all, or a resumed run would have other bits.
        return np.ascontiguousarray(np.concatenate([R, *columns], axis=1))

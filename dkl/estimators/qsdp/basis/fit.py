"""Fit of K = Q Y Q': the basis of a graph, the problem in Y that a learner poses, and its solution."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.distributed_products import Room, passes_on
from dkl.blocks.graph.neighbor_graph import Graph
from dkl.blocks.session import Session
from dkl.estimators.base.progress import solve_in_place
from dkl.estimators.qsdp.basis.checkpoint import BasisCheckpointer
from dkl.estimators.qsdp.settings import BasisSettings
from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.graph.laplacian import Similarity
from dkl.problems.qsdp.problem import QuadraticSDP
from dkl.resources import one_blas_thread, peak_rss
from dkl.solvers.qsdp.conic import solve_conic
from dkl.solvers.qsdp.interface import QSDPSolution
from dkl.solvers.qsdp.low_rank import LowRankState, solve_low_rank
from dkl.solvers.watch import Outcome, Result, Watch, remedies

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.blocks.workers.dense_work import DenseWork
    from dkl.estimators.base.validation import CheckedRows

Matrix = NDArray[np.float64]
RANK = 1e-12
"""Cutoff relative to Y's largest eigenvalue: what is below is rounding."""
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled="rounding ends all progress: loosen tol",
    stationary="the solver ended at its own tolerance: loosen tol",
    numerical_error="a value stopped being finite: scale the rows",
)
# Ten seconds are what a lost worker costs at most; a state of a few MB comes back in far less.
PART_SECONDS, MOST_STEPS = 10.0, 1 << 30
"""Seconds of a solve on a worker after which its state comes back to be kept, and steps at most until then."""
OTHER_SOLVER = dict.fromkeys((Outcome.STALLED, Outcome.STATIONARY), ', or take solver="low-rank"')
"""Addition to the remedy where a conic solver ended with one of these outcomes."""


@dataclass(frozen=True)
class Basis:
    """Basis of the smoothest eigenvectors of a graph's Laplacian L.

    L Q = Q diag(values), Q (n, m) orthonormal, to `residual` of |L|, found by `method`; similarity, by which unseen
    rows are means of others; seconds of the graph and of the eigenvectors, {} where they were not made now.
    """

    Q: Matrix = field(repr=False)
    values: Matrix
    residual: float
    method: str
    similarity: Similarity
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, graph: Graph, m: int, session: Session, *, without_first: bool = False, room: Room | None = None
    ) -> Basis:
        """Return the smoothest m eigenvectors; `without_first` skips the first (constant if connected).

        A large search runs on the session's workers.
        """
        start, first, room = time.perf_counter(), int(without_first), room or Room()
        found = smoothest(graph.laplacian, m + first, passes=passes_on(session, room=room), room=room.here)
        # Row by row, as what a run restores: BLAS rounds by the layout, and a resumed fit is to have the same bits.
        Q, values = np.ascontiguousarray(found.vectors[:, first:]), np.ascontiguousarray(found.values[first:])
        seconds = {"graph": graph.seconds, "basis": time.perf_counter() - start}
        return cls(Q, values, found.residual, found.method, graph.similarity, seconds)


class BasisProblem(Protocol):
    """A learner's problem in a basis, with what a run stores to restore it."""

    @property
    def basis(self) -> Basis:
        """Return the basis Q of the problem."""

    @property
    def problem(self) -> QuadraticSDP:
        """Return the quadratic SDP in Y."""

    @property
    def most_axes(self) -> int | None:
        """Return the maximum number of columns of the embedding, if limited."""

    @property
    def start(self) -> Matrix | None:
        """Return a factor (m, r) near that of Y where the low-rank method starts; None: at zero."""

    def hold_out(self, call: Callable[..., Any]) -> None:
        """Learn without the held-out part, if any; call(function, *arguments) runs function(problem, *arguments) where Y is found."""

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays by the names that `model.py` declares in the folder "basis"."""

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries on this problem."""

    def with_quality(self, found: BasisSolution, rows: CheckedRows, watch: Watch) -> BasisSolution:
        """Return `found` with its quality, of rows (n, d) learned from; warn if an alternative is better."""

    @classmethod
    def restored(cls, basis: Basis, found: dict[str, NDArray], settings: Any) -> Self:
        """Restore the problem from `basis` and the arrays that `arrays` returned."""


@dataclass(frozen=True)
class BasisSolution:
    """Solution of a problem in a basis: Y (m, m), embedding (n, k), the solver's solution and the result.

    held_out: arrays that a run stores of the measurement of the quality.
    """

    Y: Matrix = field(repr=False)
    embedding: Matrix = field(repr=False)
    solution: QSDPSolution
    result: Result
    held_out: dict[str, Matrix] = field(default_factory=dict, repr=False)

    def planned(self, plan: dict[str, object]) -> BasisSolution:
        """Return a copy whose result has this plan."""
        return replace(self, result=replace(self.result, plan=plan))


@one_blas_thread()  # the same bits on any machine; and matrices this small take several far longer
def solve_basis(
    work: DenseWork, settings: BasisSettings, watch: Watch, checkpointer: BasisCheckpointer | None = None
) -> BasisSolution:
    """Solve for Y where the work is, resumed from the checkpointer's state if any, and embed by its top eigenvectors.

    work: of a `BasisProblem`.
    """
    stage, posed = watch.stage("solve"), work.data
    is_low_rank, state = settings.solver == "low-rank", None
    if checkpointer is not None and is_low_rank:
        state = checkpointer.resume(stage, posed.basis.Q.shape[1])
    if is_low_rank and state is None:
        posed.hold_out(work.call)  # what is learned without the held-out part is where the low-rank method starts
    start = time.perf_counter()
    found = _solve_where_placed(work, settings, state, stage, checkpointer)
    solve_seconds = time.perf_counter() - start  # what follows is of the quality, which counts it itself
    if found.solution.outcome.converged or not found.solution.outcome.is_wanted:
        posed.hold_out(work.call)  # for the quality, unless a callback wanted the end; done above it is not done again
    # Contiguous for the same bits from here as from a worker, whose axes are unpickled.
    outcome, embedding = found.solution.outcome, posed.basis.Q @ np.ascontiguousarray(found.axes)
    seconds = posed.basis.seconds | {"solve": solve_seconds}
    result = Result(
        outcome, found.solution.n_iter, watch.history, seconds | {"total": watch.seconds}, peak_rss(),
        remedy=REMEDIES[outcome] + ("" if is_low_rank else OTHER_SOLVER.get(outcome, "")),
        proven=found.proven, asked=settings.tol, placement=work.place.text,
    )  # fmt: skip
    return BasisSolution(found.Y, embedding, found.solution, result)


@dataclass(frozen=True)
class BasisKernel:
    """Solution of a problem in a basis as the process that found it returns it: Y (m, m), its axes (m, k), the proven gap."""

    solution: QSDPSolution
    Y: Matrix
    axes: Matrix
    proven: float


@dataclass(frozen=True)
class SolveProgress:
    """Last state of the low-rank method, None of other solvers, and the solution; None while it has not ended."""

    state: LowRankState | None
    found: BasisKernel | None


class CommitDue(Exception):
    """End of a part of a solve on a worker, whose state is to be kept before it continues."""


def _solve_where_placed(
    work: DenseWork,
    settings: BasisSettings,
    state: LowRankState | None,
    stage: Watch,
    checkpointer: BasisCheckpointer | None,
) -> BasisKernel:
    """Solve in the place of the work; the checkpointer has the state after each step here, and now and then of a worker."""
    if work.is_here or checkpointer is None or settings.solver != "low-rank":
        on_state = None if checkpointer is None else lambda state: checkpointer.on_state(state, stage)
        if work.is_here:
            found = work.call(_solve_in_process, settings, state, None, stage, on_state).found
        else:
            found = solve_in_place(work, stage, _solve_in_process, settings, state, None).found
    else:
        found = None
        while found is None:
            steps = min(checkpointer.rule.steps_until_due(), MOST_STEPS)
            reached = solve_in_place(work, stage, _solve_in_process, settings, state, steps)
            # No state where the part ended before its first step: that of the part before is where the next begins.
            found, state = reached.found, reached.state or state
            # An interruption here may leave the worker some steps ahead: a state is kept only if the history has its row.
            rows = stage.history
            if reached.state is not None and rows and rows[-1]["iteration"] == reached.state.iteration:
                checkpointer.on_state(reached.state, stage)
    assert found is not None
    return found


def _solve_in_process(
    posed: BasisProblem,
    settings: BasisSettings,
    resume_from: LowRankState | None,
    steps: int | None,
    watch: Watch,
    on_state: Callable[[LowRankState], object] | None = None,
) -> SolveProgress:
    """Solve, wherever this runs; with `steps` up to as many steps, or PART_SECONDS, and return the state to continue from."""
    problem, last = posed.problem, resume_from
    first, began = 0 if resume_from is None else resume_from.iteration, time.monotonic()

    def keep(state: LowRankState) -> None:
        nonlocal last
        last = state
        if on_state is not None:
            on_state(state)
        # One step at least a part: else a slow step would be computed again and again, and thrown away each time.
        is_late = state.iteration > first and time.monotonic() - began > PART_SECONDS
        if steps is not None and (is_late or state.iteration >= first + steps):
            raise CommitDue

    options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "watch": watch}
    with one_blas_thread():
        try:
            if settings.solver == "low-rank":
                near = posed.start if resume_from is None else None
                found = solve_low_rank(problem, start=near, resume_from=resume_from, on_state=keep, **options)
            else:
                found = solve_conic(problem, settings.solver, memory_limit=settings.memory_limit, **options)
        except CommitDue:
            return SolveProgress(last, None)
        Y, axes = _spectrum(found.factor)
        return SolveProgress(last, BasisKernel(found, Y, axes[:, : posed.most_axes], _proven(problem, found, Y)))


def _proven(problem: QuadraticSDP, found: QSDPSolution, Y: Matrix) -> float:
    """Return the relative gap of the rounded Y (m, m) by the solution's dual, at least that of its factor."""
    # eigvalsh of NaN raises; no bound of it is proven anyway.
    if not np.isfinite(Y).all():
        return float("inf")
    # np.max, unlike max, lets NaN through, which `Result` refuses to call solved.
    return float(np.max([found.certificate.relative_gap, problem.certify(Y, found.dual).relative_gap]))


def _spectrum(factor: Matrix) -> tuple[Matrix, Matrix]:
    """Return (Y, its eigenvectors times the roots of eigenvalues, descending, largest entries positive)."""
    Y = factor @ factor.T
    # BLAS computes a block of the product above and below the diagonal in another order; Y is stored symmetric to the bit.
    Y = 0.5 * (Y + Y.T)
    values, vectors = np.linalg.eigh(Y)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > RANK * max(float(values[0]), 0.0)
    # LAPACK leaves signs open, and they differ between its versions: without this a picture may be mirrored by an update.
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(Y))]
    return Y, (vectors * np.where(largest < 0, -1.0, 1.0))[:, kept] * np.sqrt(values[kept])

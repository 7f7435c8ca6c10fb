"""Fit of K = Q Y Q': the basis of a graph, the problem in Y that a learner poses, and its solution."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.distributed_chebyshev import passes_on
from dkl.blocks.graph.neighbor_graph import Graph
from dkl.blocks.memory.eigenvector_memory import Room
from dkl.blocks.session import Session
from dkl.estimators.qsdp.basis.checkpoint import BasisCheckpointer
from dkl.estimators.qsdp.basis.settings import BasisSettings
from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.graph.similarity import Similarity
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.qsdp.problem import QuadraticSDP
from dkl.resources import peak_rss
from dkl.solvers.qsdp.conic import solve_conic
from dkl.solvers.qsdp.interface import QSDPSolution
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.result import Outcome, Result, remedies
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import CheckedRows

Matrix = NDArray[np.float64]
RANK = 1e-12
"""Cutoff relative to Y's largest eigenvalue: what is below is rounding."""
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled="rounding ends all progress: loosen tol",
    stationary="the solver ended at its own tolerance: loosen tol",
    numerical_error="a value stopped being finite: scale the rows",
)
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

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays by the names that the learner's arrays.py declares in the folder "basis"."""

    def told(self) -> dict[str, object]:
        """Return the report's entries on this problem."""

    def with_quality(self, found: BasisSolution, rows: CheckedRows, watch: Watch) -> BasisSolution:
        """Return `found` with its quality, of rows (n, d) learned from; warn if an alternative is better."""

    @classmethod
    def again(cls, basis: Basis, found: dict[str, NDArray], settings: Any) -> Self:
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
def solved(
    posed: BasisProblem, settings: BasisSettings, watch: Watch, checkpointer: BasisCheckpointer | None = None
) -> BasisSolution:
    """Solve for Y by the chosen solver, resumed from the checkpointer's state if any, and embed by its top eigenvectors."""
    stage, problem = watch.stage("solve"), posed.problem
    resume_from = (
        None if checkpointer is None or settings.solver != "low-rank" else checkpointer.resume(stage, problem.m)
    )
    near = posed.start if resume_from is None and settings.solver == "low-rank" else None
    start = time.perf_counter()
    options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "watch": stage}
    if settings.solver != "low-rank":
        found = solve_conic(problem, settings.solver, memory_limit=settings.memory_limit, **options)
    elif checkpointer is None:
        found = solve_low_rank(problem, start=near, **options)
    else:
        found = solve_low_rank(
            problem,
            start=near,
            resume_from=resume_from,
            on_state=lambda state: checkpointer.on_state(state, stage),
            **options,
        )
    Y, axes = _spectrum(found.factor)
    embedding = posed.basis.Q @ np.ascontiguousarray(axes[:, : posed.most_axes])
    more = "" if settings.solver == "low-rank" else OTHER_SOLVER.get(found.outcome, "")
    seconds = posed.basis.seconds | {"solve": time.perf_counter() - start}
    result = Result(
        found.outcome, found.n_iter, watch.history, seconds | {"total": watch.seconds}, peak_rss(),
        remedy=REMEDIES[found.outcome] + more, proven=_proven(problem, found, Y), asked=settings.tol,
    )  # fmt: skip
    return BasisSolution(Y, embedding, found, result)


def _proven(problem: QuadraticSDP, found: QSDPSolution, Y: Matrix) -> float:
    """Return the relative gap of the rounded Y (m, m) by the solution's dual, at least that of its factor."""
    if not np.isfinite(Y).all():
        return float("inf")
    return float(np.max([found.certificate.relative_gap, problem.certify(Y, found.dual).relative_gap]))


def _spectrum(factor: Matrix) -> tuple[Matrix, Matrix]:
    """Return (Y, its eigenvectors times the roots of eigenvalues, descending, largest entries positive)."""
    Y = factor @ factor.T
    Y = 0.5 * (Y + Y.T)
    values, vectors = np.linalg.eigh(Y)
    values, vectors = values[::-1], vectors[:, ::-1]
    kept = values > RANK * max(float(values[0]), 0.0)
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(Y))]
    return Y, (vectors * np.where(largest < 0, -1.0, 1.0))[:, kept] * np.sqrt(values[kept])

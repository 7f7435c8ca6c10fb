"""Maximum variance unfolding with hard distances (Wu et al. 2009, (1)-(4)), on all rows; and checkpoints, from which a fit continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base import map_quality
from dkl.estimators.qsdp.basis.checkpoint import open_checkpoints
from dkl.estimators.qsdp.basis.hard import HardSolution, solved_hard
from dkl.estimators.qsdp.basis.plan import plan_unfolding
from dkl.estimators.qsdp.mvu.fit import neighbor_edges, similarity_of_unseen
from dkl.problems.qsdp.faces import face_of_cliques
from dkl.problems.qsdp.linear import LinearSDP, unfolding
from dkl.solvers.qsdp.augmented import Array, LagrangianState, LinearSDPSolution, solve_augmented
from dkl.solvers.qsdp.interior import MOST_TERMS, PathState, interior_bytes, solve_interior
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch
from dkl.stores.checkpointer import StateCheckpointer
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import UnfoldingSettings
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows


ADVICE = 'try another n_neighbors, or constraints="at-most"'
LOOSE, NEARLY = 2.2, 100.0
"""Edges a row up to which factors are tried first; error, in tol, up to which a stalled interior point is not followed by them."""
START_COLUMNS = 64
"""Columns of rows that are themselves the start: they have all distances."""


@dataclass(frozen=True)
class PosedDistances:
    """Edges (e, 2), i < j, of n rows, and their squared distances (e,), which are kept or bound.

    similarity: by which unseen rows are means of their neighbors; seconds: of the graph, 0 where it was not made now.
    """

    n: int
    edges: NDArray[np.intp] = field(repr=False)
    squared: NDArray[np.float64] = field(repr=False)
    similarity: Similarity
    seconds: float = 0.0

    @classmethod
    def of(cls, rows: Rows, settings: UnfoldingSettings, session: Session, bytes_used: int = 0) -> PosedDistances:
        """Return the distances of neighbors among rows (n, d); InputError for rows that are all equal."""
        graph, edges, squared = neighbor_edges(rows, settings, session, bytes_used)
        return cls(int(rows.shape[0]), edges, squared, similarity_of_unseen(graph), graph.seconds)

    @property
    def laplacian(self) -> sparse.csr_array:
        """Return the Laplacian (n, n) of the edges, each of weight 1."""
        (i, j), e = self.edges.T, len(self.edges)
        W = sparse.csr_array((np.ones(2 * e), (np.r_[i, j], np.r_[j, i])), shape=(self.n, self.n))
        found = sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)
        found.sort_indices()
        return found


def unfolded(
    rows: Rows, settings: UnfoldingSettings, session: Session, watch: Watch
) -> tuple[HardSolution, PosedDistances]:
    """Unfold checked rows (n, d) neighbors as far apart as they were, or at most so; return (solution with quality, distances).

    Raises InputError for rows that are all equal, and MemoryBudgetError before any work.
    """
    n, d = (int(size) for size in rows.shape)
    planned = plan_unfolding(n, d, settings, session)
    posed = PosedDistances.of(rows, settings, session)
    return with_quality(solved_distances(rows, posed, planned, settings, watch), rows, settings, watch), posed


def solved_distances(
    rows: Rows,
    posed: PosedDistances,
    planned: HardPlan,
    settings: UnfoldingSettings,
    watch: Watch,
    checkpointer: HardCheckpointer | None = None,
) -> HardSolution:
    """Return the kernel of most variance with the distances of neighbors among rows (n, d), resumed from a state that is kept."""
    is_upper, start = settings.constraints == "at-most", _start(rows)
    edges, squared = posed.edges, posed.squared
    problem = unfolding(posed.n, edges, squared, is_upper=is_upper)
    is_small = not is_upper and len(edges) <= MOST_TERMS and interior_bytes(len(edges), posed.n) <= planned.room
    solve = partial(_solved, problem, edges, squared, settings, start, planned.room, is_small, checkpointer)
    return solved_hard(
        problem, posed.laplacian, posed.similarity, planned, settings, watch, seconds=posed.seconds,
        most_axes=int(settings.n_components), solve=solve,
    )  # fmt: skip


def with_quality(found: HardSolution, rows: Rows, settings: UnfoldingSettings, watch: Watch) -> HardSolution:
    """Return `found` with its quality, next to principal components of the rows (n, d); unmeasured where `holdout` is 0."""
    if not settings.holdout:
        return found
    embedding = found.embedding.__getitem__
    result = map_quality.with_quality(found.result, row_source(rows), embedding, ADVICE, watch=watch, stacklevel=3)
    return replace(found, result=result)


def _solved(
    problem: LinearSDP,
    edges: NDArray[np.intp],
    squared: NDArray[np.float64],
    settings: UnfoldingSettings,
    start: NDArray[np.float64] | None,
    room: float,
    is_small: bool,
    checkpointer: HardCheckpointer | None,
    watch: Watch,
) -> LinearSDPSolution:
    """Solve by an interior point on the face that cliques leave, or by factors: by these first where edges are few.

    Where one stalls the other has its turn, and what is proven better is returned; of a problem that is not small factors are all.
    """
    options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "start": start}

    def solved(method: Method, ended: EndedMethod | None = None) -> LinearSDPSolution:
        stage, kept = watch.stage(method), {}
        face = face_of_cliques(problem.n, edges, squared) if method == "interior" else None
        if checkpointer is not None:
            kept = {
                "resume_from": checkpointer.resume(stage, method, None if face is None else face.shape[1]),
                "on_state": lambda found: checkpointer.on_state(HardCheckpoint(method, found, ended), watch),
            }
        if face is None:
            return solve_augmented(problem, room=room, watch=stage, **kept, **options)
        return solve_interior(problem, face, edges, watch=stage, **kept, **options)

    is_loose = len(edges) <= LOOSE * problem.n
    one: Method = "solve" if is_loose or not is_small else "interior"
    other: Method = "interior" if one == "solve" else "solve"
    ended = None if checkpointer is None else checkpointer.ended(watch)
    first = solved(one) if ended is None else ended.solution(problem)
    is_near = not is_loose and first.certificate.error <= NEARLY * settings.tol
    if not is_small or first.outcome is not Outcome.STALLED or is_near:
        return first
    second = solved(other, EndedMethod.of(one, first))
    return min(first, second, key=lambda found: float(found.certificate.error))


def _start(rows: Any) -> NDArray[np.float64] | None:
    """Return the rows as a factor of a kernel that meets all constraints; None where they are many columns."""
    if rows.shape[1] > START_COLUMNS:
        return None
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


Method = Literal["solve", "interior"]
"""Stages of the history: by factors, and by the interior point."""


@dataclass(frozen=True)
class EndedMethod:
    """Solution of the method that had the first turn, where the other has the second; low: of its certificate."""

    method: Method
    outcome: Outcome
    factor: Annotated[Array, "sample", "first column"] = field(repr=False)
    dual: Annotated[Array, "edge"] = field(repr=False)
    low: float
    n_iter: int
    n_newton: int
    face: int | None

    @classmethod
    def of(cls, method: Method, found: LinearSDPSolution) -> EndedMethod:
        """Return what is kept of a solution."""
        low = float(found.certificate.min_eigenvalue)
        return cls(method, found.outcome, found.factor, found.dual, low, found.n_iter, found.n_newton, found.face)

    def solution(self, problem: LinearSDP) -> LinearSDPSolution:
        """Return the solution, certified once more."""
        proof = problem.certify(self.factor, self.dual, self.low)
        return LinearSDPSolution(
            self.outcome, self.factor, self.dual, proof, self.n_iter, self.n_newton, self.face
        )  # fmt: skip


@dataclass(frozen=True)
class HardCheckpoint:
    """State of the method under way, the solution of the one before it, and the history's rows up to it."""

    method: Method
    state: PathState | LagrangianState
    ended: EndedMethod | None = None
    rows: list[Row] = field(default_factory=list, repr=False)

    @property
    def step(self) -> int:
        """Return the number of the step, which those of a method before it count in."""
        return self.state.iteration + (0 if self.ended is None else self.ended.n_iter + 1)

    def fits(self, n: int, n_edges: int) -> bool:
        """Return whether it is of n rows with as many edges, its method's own, and finite."""
        of_best = [(self.state.best, self.state.best_dual)]
        of_best += [] if self.ended is None else [(self.ended.factor, self.ended.dual)]
        are_finite = all(np.isfinite(one).all() for one in vars(self.state).values() if isinstance(one, np.ndarray))
        is_own = isinstance(self.state, PathState) == (self.method == "interior")
        return is_own and are_finite and all(len(R) == n and len(y) == n_edges for R, y in of_best)


class HardCheckpointer(StateCheckpointer[HardCheckpoint | None]):
    """Checkpointer of the state of a method, every `every` steps or by time."""

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every, open_checkpoints(run), HardCheckpoint, None)
        self.kept: Callable[[], list[Row]] = list
        if self.state is not None:
            self.rule.step = self.rule.committed = self.state.step

    def keep_if_of(self, n: int, n_edges: int) -> None:
        """Forget a state that is not of n rows with as many edges."""
        if self.state is not None and not self.state.fits(n, n_edges):
            self.state, self.rule.step, self.rule.committed = None, 0, 0

    def ended(self, watch: Watch) -> EndedMethod | None:
        """Return the method that had the first turn, if that has ended, its rows restored to a stage of `watch`."""
        if self.state is None or self.state.ended is None:
            return None
        self._restore(watch.stage(self.state.ended.method), self.state.ended.method)
        return self.state.ended

    def resume(self, stage: Watch, method: Method, face: int | None) -> Any:
        """Return the state that the method resumes from, its rows restored to its stage; None if none is stored, or of another face."""
        if self.state is None or self.state.method != method:
            return None
        if isinstance(self.state.state, PathState) and len(self.state.state.V) != face:
            return None
        self._restore(stage, method)
        return self.state.state

    def _restore(self, stage: Watch, method: Method) -> None:
        assert self.state is not None  # or there are no rows
        stage.resume([row for row in self.state.rows if row.get("stage") == method])

    def on_state(self, found: HardCheckpoint, watch: Watch) -> None:
        """Record a method's current state, and commit it if due."""
        if self.state is None or found.step != self.rule.step:
            count = watch.n_rows
            self.state, self.kept = found, lambda: watch.history[:count]
            self.rule.step = found.step
            self.commit_due()

    def to_snapshot(self, state: HardCheckpoint | None) -> HardCheckpoint:
        """Return the state with its rows."""
        assert state is not None  # a step was taken
        return replace(state, rows=self.kept())

    def log_entries(self, state: HardCheckpoint | None) -> dict[str, object]:
        """Return the iteration of the state."""
        return {} if state is None else {"iteration": state.state.iteration}

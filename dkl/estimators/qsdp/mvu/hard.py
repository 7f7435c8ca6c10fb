"""Maximum variance unfolding with hard distances (Wu et al. 2009, (1)-(4)), on all rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base import map_quality
from dkl.estimators.qsdp.basis.hard import HardSolution, plan_hard, room_for_factors, solved_hard
from dkl.estimators.qsdp.mvu.fit import neighbor_edges, similarity_of_unseen
from dkl.problems.qsdp.faces import face_of_cliques
from dkl.problems.qsdp.linear import unfolding
from dkl.solvers.qsdp.augmented import solve_augmented
from dkl.solvers.qsdp.interior import interior_bytes, solve_interior
from dkl.solvers.result import Outcome

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.mvu.settings import UnfoldingSettings
    from dkl.linalg.rows.row_types import Rows
    from dkl.problems.qsdp.linear import LinearSDP
    from dkl.solvers.qsdp.augmented import LinearSDPSolution
    from dkl.solvers.watch import Watch

ADVICE = 'try another n_neighbors, or constraints="at-most"'
MOST_TERMS = 4000
"""Distances up to which the interior point is taken: its steps take their third power."""
LOOSE, NEARLY = 2.2, 100.0
"""Edges a row up to which factors are tried first; error, in tol, up to which a stalled interior point is not followed by them."""
START_COLUMNS = 64
"""Columns of rows that are themselves the start: they have all distances."""


def unfolded(
    rows: Rows, settings: UnfoldingSettings, is_upper: bool, session: Session, watch: Watch
) -> tuple[HardSolution, NDArray[np.intp]]:
    """Unfold checked rows (n, d) neighbors as far apart as they were, or at most so; return (solution with quality, edges (e, 2)).

    Raises InputError for rows that are all equal, and MemoryBudgetError before any work.
    """
    n, d = (int(size) for size in rows.shape)
    plan = plan_hard(n, d, n * min(settings.n_neighbors, n - 1), settings, session)
    graph, edges, squared = neighbor_edges(rows, settings, session)
    problem, start, solve = unfolding(n, edges, squared, is_upper=is_upper), _start(rows), None
    room = room_for_factors(settings.memory_limit, plan.items)
    if not is_upper and len(edges) <= MOST_TERMS and interior_bytes(len(edges), n) <= room:
        solve = partial(_solved, problem, edges, squared, settings, start, room)
    found = solved_hard(
        problem, graph, similarity_of_unseen(graph), plan, settings, watch, start=start, most_axes=int(settings.n_components),
        solve=solve,
    )  # fmt: skip
    if not settings.holdout:
        return found, edges
    embedding = found.embedding.__getitem__
    result = map_quality.with_quality(found.result, row_source(rows), embedding, ADVICE, watch=watch, stacklevel=3)
    return replace(found, result=result), edges


def _solved(
    problem: LinearSDP,
    edges: NDArray[np.intp],
    squared: NDArray[np.float64],
    settings: UnfoldingSettings,
    start: NDArray[np.float64] | None,
    room: float,
    watch: Watch,
) -> LinearSDPSolution:
    """Solve by an interior point on the face that cliques leave, or by factors: by these first where edges are few.

    Where one stalls the other has its turn, and what is proven better is returned.
    """
    options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "start": start}

    def by_factors() -> LinearSDPSolution:
        return solve_augmented(problem, room=room, watch=watch.stage("solve"), **options)

    def inside() -> LinearSDPSolution:
        face = face_of_cliques(problem.n, edges, squared)
        return solve_interior(problem, face, edges, watch=watch.stage("interior"), **options)

    is_loose = len(edges) <= LOOSE * problem.n
    first = by_factors() if is_loose else inside()
    if first.outcome is not Outcome.STALLED or (not is_loose and first.certificate.error <= NEARLY * settings.tol):
        return first
    return min(first, inside() if is_loose else by_factors(), key=lambda one: float(one.certificate.error))


def _start(rows: Any) -> NDArray[np.float64] | None:
    """Return the rows as a factor of a kernel that meets all constraints; None where they are many columns."""
    if rows.shape[1] > START_COLUMNS:
        return None
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)

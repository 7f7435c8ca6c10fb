"""Maximum variance unfolding with hard distances (Wu et al. 2009, (1)-(4)), on all rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base import map_quality
from dkl.estimators.qsdp.basis.hard import HardSolution, solve_hard
from dkl.estimators.qsdp.basis.hard_store import EndedMethod, HardCheckpointer, Method
from dkl.estimators.qsdp.mvu.fit import neighbor_edges, similarity_of_unseen
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.faces import cliques_of, face_of_cliques
from dkl.problems.qsdp.linear import unfolding
from dkl.solvers.qsdp.augmented import solve_augmented
from dkl.solvers.qsdp.interior import MOST_TERMS, interior_bytes, solve_interior
from dkl.solvers.result import Outcome

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import UnfoldingSettings
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows
    from dkl.problems.qsdp.linear import LinearSDP
    from dkl.solvers.qsdp.augmented import LinearSDPSolution
    from dkl.solvers.watch import Watch

ADVICE = 'try another n_neighbors, or constraints="at-most"'
STALLED = ', or take constraints="at-most": exact distances may leave the kernel no room'
# A spiral with edges to two rows on each side, 2 edges a row: factors solve it in seconds, the interior point stalls.
LOOSE, NEARLY = 2.2, 100.0
"""Edges a row up to which factors are tried first; error, in tol, up to which a stalled interior point is not followed by them."""
# A step costs by the factor's columns; the plan counts with 40 of them.
START_COLUMNS = 64
"""Maximum number of columns of X for the solver to start at X itself, which meets every distance."""


@dataclass(frozen=True)
class HardDistancesProblem:
    """Edges (e, 2), i < j, of n rows, and their squared distances (e,), which are kept or bound: (1)-(4).

    similarity: by which unseen rows are means of their neighbors; seconds: of the graph, 0 where it was not made now.
    """

    n: int
    edges: NDArray[np.intp] = field(repr=False)
    squared: NDArray[np.float64] = field(repr=False)
    similarity: Similarity
    settings: UnfoldingSettings
    seconds: float = 0.0
    nu: ClassVar[float] = np.inf

    @classmethod
    def of(cls, rows: Rows, settings: UnfoldingSettings, session: Session, bytes_used: int = 0) -> HardDistancesProblem:
        """Return the distances of neighbors among rows (n, d); InputError for rows that are all equal."""
        graph, edges, squared = neighbor_edges(rows, settings, session, bytes_used)
        return cls(int(rows.shape[0]), edges, squared, similarity_of_unseen(graph), settings, graph.seconds)

    @cached_property
    def laplacian(self) -> sparse.csr_array:
        """Return the Laplacian (n, n) of the edges, each of weight 1."""
        (i, j), e = self.edges.T, len(self.edges)
        W = sparse.csr_array((np.ones(2 * e), (np.r_[i, j], np.r_[j, i])), shape=(self.n, self.n))
        found = sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)
        found.sort_indices()
        return found

    @cached_property
    def problem(self) -> LinearSDP:
        """Return hard MVU (1)-(4), or with distances as upper bounds."""
        return unfolding(self.n, self.edges, self.squared, is_upper=self.settings.constraints == "at-most")

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a run stores in addition to the similarity."""
        return {"edges": self.edges.astype(np.int64), "squared": self.squared}

    def model(self, found: HardSolution) -> dict[str, NDArray]:
        """Return the cliques of the face that the bound is of, if it is of one."""
        if found.solution.face is None:
            return {}
        cliques = cliques_of(self.n, self.edges)
        members = np.array([row for clique in cliques for row in clique], np.int64)
        return {"cliques": members, "clique_sizes": np.array([len(clique) for clique in cliques], np.int64)}

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries: the number of edges."""
        return {"n_edges": len(self.edges)}

    @classmethod
    def restored(
        cls, n: int, found: dict[str, NDArray], similarity: Similarity, settings: UnfoldingSettings
    ) -> HardDistancesProblem:
        """Restore the problem from what `arrays` returned; InputError for invalid edges or lengths."""
        edges = checks.edges(found["edges"], n)
        squared = np.ascontiguousarray(checks.edge_lengths(found["squared"], len(edges)))
        return cls(n, np.ascontiguousarray(edges.astype(np.intp)), squared, similarity, settings)

    def solve(
        self, rows: Rows, planned: HardPlan, watch: Watch, checkpointer: HardCheckpointer | None = None
    ) -> HardSolution:
        """Return the kernel of most variance with the distances of neighbors among rows (n, d); see `HardProblem.solve`."""
        is_upper, start = self.settings.constraints == "at-most", _start(rows)
        # The interior point factorizes a dense matrix of as many rows as there are edges.
        is_small = len(self.edges) <= MOST_TERMS and interior_bytes(len(self.edges), self.n) <= planned.room
        solve = partial(self._solved, start, planned.room, is_small and not is_upper, checkpointer)
        return solve_hard(
            self, planned, self.settings, watch, solve, seconds=self.seconds, most_axes=int(self.settings.n_components),
            stalled="" if is_upper else STALLED,
        )  # fmt: skip

    def with_quality(self, found: HardSolution, rows: Rows, planned: HardPlan, watch: Watch) -> HardSolution:
        """Return `found` with its quality, next to principal components of the rows (n, d); unmeasured where `holdout` is 0."""
        if not self.settings.holdout:
            return found
        embedding = found.embedding.__getitem__
        result = map_quality.with_quality(
            found.result, row_source(rows), embedding, ADVICE, watch=watch, stacklevel=4
        )  # fmt: skip
        return replace(found, result=result)

    def _solved(
        self,
        start: NDArray[np.float64] | None,
        room: float,
        is_small: bool,
        checkpointer: HardCheckpointer | None,
        watch: Watch,
    ) -> LinearSDPSolution:
        """Solve by an interior point on the face that cliques leave, or by factors: by these first where edges are few.

        Where one stalls the other has its turn, and what is proven better is returned; of a problem that is not small factors are all.
        """
        problem, edges, settings = self.problem, self.edges, self.settings
        options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "start": start}

        def solve_by(method: Method, ended: EndedMethod | None = None) -> LinearSDPSolution:
            stage, kept = watch.stage(method), {}
            # Distances within a clique fix its Gram matrix: without the face the problem has no interior point to follow.
            face = face_of_cliques(problem.n, edges, self.squared) if method == "interior" else None
            if checkpointer is not None:
                size = None if face is None else face.shape[1]
                kept = checkpointer.options(watch, stage, method, size, ended)
            if face is None:
                return solve_augmented(problem, room=room, watch=stage, **kept, **options)
            return solve_interior(problem, face, edges, watch=stage, **kept, **options)

        # On rigid cliques no kernel of these distances is positive definite, and the multipliers of factors run away.
        is_loose = len(edges) <= LOOSE * problem.n
        one: Method = "solve" if is_loose or not is_small else "interior"
        other: Method = "interior" if one == "solve" else "solve"
        ended = None if checkpointer is None else checkpointer.ended(watch)
        first = solve_by(one) if ended is None else ended.solution(problem)
        # With many edges a row factors stall at gaps near 6e-4: they would not come nearer than the interior point has.
        is_near = not is_loose and first.certificate.error <= NEARLY * settings.tol
        if not is_small or first.outcome is not Outcome.STALLED or is_near:
            return first
        second = solve_by(other, EndedMethod.of(one, first))
        return min(first, second, key=lambda found: float(found.certificate.error))


def _start(rows: Any) -> NDArray[np.float64] | None:
    """Return the rows as a factor of a kernel that meets all constraints; None where they have more than START_COLUMNS columns."""
    if rows.shape[1] > START_COLUMNS:
        return None
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)

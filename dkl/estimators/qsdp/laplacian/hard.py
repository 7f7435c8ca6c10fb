"""Pairwise constraint propagation with hard constraints (Wu et al. 2009, (5)-(9)), on all rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.errors import InputError
from dkl.estimators.base.plain_models import hold_out
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.basis.hard import HardSolution, solve_hard
from dkl.estimators.qsdp.laplacian.fit import STEP, pair_ends, quality_on
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.linear import propagation
from dkl.quality import MIN_HELD_OUT, too_few
from dkl.side_information.pairs import Pairs
from dkl.solvers.qsdp.augmented import solve_augmented

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.basis.hard_store import HardCheckpointer
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import PropagationSettings
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows
    from dkl.problems.qsdp.linear import LinearSDP
    from dkl.solvers.qsdp.augmented import LinearSDPSolution
    from dkl.solvers.watch import Watch

PROVEN = ("relative_gap", "infeasibility", "min_eigenvalue")
"""Numbers of its certificate that a run keeps of the kernel without held-out pairs."""
HELD_OUT_TOL = 1e-2
"""Relative gap and infeasibility of the kernel without the held-out pairs."""


@dataclass(frozen=True)
class HardPairsProblem:
    """Checked pairs of n rows that hold exactly: K_ii = 1, K_ij = 1 of must-links, 0 of cannot-links; min tr(L K).

    edges (e, 2), i < j, of the graph, and couplings (e,): -L_ij of its normalized Laplacian L, whose diagonal is 1, or 0 of rows
    without an edge; similarity: by which unseen rows are means of others; seconds: of the graph, 0 where it was not made now.
    """

    n: int
    edges: NDArray[np.int64] = field(repr=False)
    couplings: NDArray[np.float64] = field(repr=False)
    pairs: Pairs
    similarity: Similarity
    settings: PropagationSettings
    seconds: float = 0.0

    @classmethod
    def of(
        cls, rows: Rows, pairs: Pairs, settings: PropagationSettings, session: Session, bytes_used: int = 0
    ) -> HardPairsProblem:
        """Build the problem from rows (n, d) and pairs of them."""
        graph = build_graph(
            rows, n_neighbors=min(settings.n_neighbors, int(rows.shape[0]) - 1), sigma=width_rule(settings.sigma, "local"),
            laplacian="normalized", memory_limit=settings.memory_limit, bytes_used=bytes_used, session=session,
        )  # fmt: skip
        # L is symmetric with a diagonal of ones and zeros: the entries above it are all that a run has to store.
        above = sparse.coo_array(sparse.triu(graph.laplacian, 1))
        edges = np.stack(above.coords, axis=1).astype(np.int64)
        return cls(graph.n, edges, -above.data, pairs, graph.similarity, settings, graph.seconds)

    @cached_property
    def laplacian(self) -> sparse.csr_array:
        """Return L (n, n)."""
        i, j = self.edges.T
        has_edge = np.zeros(self.n)
        has_edge[self.edges.ravel()] = 1.0
        own = np.flatnonzero(has_edge)
        values = np.concatenate([-self.couplings, -self.couplings, np.ones(len(own))])
        ends = np.concatenate([i, j, own]), np.concatenate([j, i, own])
        found = sparse.csr_array((values, ends), shape=(self.n, self.n))
        # Columns in order in each row: sums of products, and so the bits of a resumed fit, depend on it.
        found.sort_indices()
        return found

    @cached_property
    def merged(self) -> tuple[LinearSDP, NDArray[np.int64]]:
        """Return (problem, labels (n,)): rows that must-links join share a row of its K, and labels[i] is that of row i."""
        return propagation(self.laplacian, self.pairs.must_link, self.pairs.cannot_link)

    @property
    def problem(self) -> LinearSDP:
        """Return hard PCP (5)-(9)."""
        return self.merged[0]

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a run stores in addition to the similarity."""
        return {"edges": self.edges, "couplings": self.couplings, **pair_ends(self.pairs)}

    def model(self, found: HardSolution) -> dict[str, NDArray]:
        """Return {}: the bound holds for all kernels, and needs no array."""
        return {}

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries: the numbers of pairs."""
        return {"n_must": self.pairs.n_must, "n_cannot": self.pairs.n_cannot}

    @classmethod
    def restored(
        cls, n: int, found: dict[str, NDArray], similarity: Similarity, settings: PropagationSettings
    ) -> HardPairsProblem:
        """Restore the problem from what `arrays` returned; InputError for edges or pairs that are not of these rows."""
        edges = np.ascontiguousarray(checks.edges(found["edges"], n), np.int64)
        couplings = checks.numbers(found["couplings"], "couplings", f"({len(edges)},) numbers, one an edge", 1)
        if len(couplings) != len(edges):
            raise InputError("not one an edge", where="couplings", got=len(couplings), wanted=f"{len(edges)} numbers")
        pairs = Pairs(found["must_link"], found["cannot_link"]).check(n)
        return cls(n, edges, np.ascontiguousarray(couplings), pairs, similarity, settings)

    def solve(
        self, rows: object, planned: HardPlan, watch: Watch, checkpointer: HardCheckpointer | None = None
    ) -> HardSolution:
        """Return the smoothest kernel under the pairs; see `HardProblem.solve`. The rows are not looked at."""
        solve, labels = partial(self._solved, planned.room, checkpointer), self.merged[1]
        return solve_hard(self, planned, self.settings, watch, solve, seconds=self.seconds, rows=labels)

    def with_quality(self, found: HardSolution, rows: Rows, planned: HardPlan, watch: Watch) -> HardSolution:
        """Return `found` with its quality, by a kernel without the held-out pairs; warn where distances of rows are better."""
        holdout = self.settings.holdout
        if not holdout or (found.result.outcome.is_wanted and not found.result.outcome.converged):
            return found
        masks, began = hold_out(self.n, self.pairs, holdout, STEP), time.perf_counter()
        if masks is None or np.count_nonzero(masks[1]) < MIN_HELD_OUT:
            return replace(found, result=replace(found.result, no_quality=too_few(len(self.pairs.i), "pairs")))
        (learn, tests), is_must = masks, self.pairs.sign > 0
        ends: NDArray[np.int64] = np.stack([self.pairs.i, self.pairs.j], axis=1)
        problem, labels = propagation(self.laplacian, ends[learn & is_must], ends[learn & ~is_must])
        held = solve_augmented(problem, tol=HELD_OUT_TOL, max_iter=self.settings.max_iter, room=planned.room)
        # By labels: rows that must-links join share a row of the factor.
        first, second = (held.factor[labels[ends[tests, k]]] for k in (0, 1))
        quality = quality_on(first, second, self.pairs, tests, rows, stacklevel=5)
        result, proof = (
            found.result.with_quality(quality, time.perf_counter() - began, "", watch.seconds),
            held.certificate,
        )
        proven = {name: np.array([float(getattr(proof, name))]) for name in PROVEN}
        points = np.ascontiguousarray(held.factor)
        return replace(found, result=result, held_out={"points": points, "dual": held.dual, **proven})

    def _solved(self, room: float, checkpointer: HardCheckpointer | None, watch: Watch) -> LinearSDPSolution:
        stage, settings = watch.stage("solve"), self.settings
        kept = {} if checkpointer is None else checkpointer.options(watch, stage, "solve")
        return solve_augmented(
            self.problem, tol=settings.tol, max_iter=settings.max_iter, room=room, watch=stage, **kept
        )  # fmt: skip

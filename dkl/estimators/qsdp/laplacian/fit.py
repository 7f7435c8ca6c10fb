"""Problems of kernels from pairs: RegPCP in the basis of the normalized Laplacian, and hard pairs on all rows.

RegPCP has the pairs in its objective; hard constraints are those of Wu et al. 2009, (5)-(9).
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.graph.distributed_products import Room
from dkl.blocks.graph.neighbor_graph import build_graph, parts_text
from dkl.blocks.session import Session
from dkl.errors import DataWarning, InputError
from dkl.estimators.base.plain_models import DISTANCES, hold_out, quality_of_pairs, similarities
from dkl.estimators.base.progress import warn_if_worse
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.basis.fit import Basis, BasisSolution
from dkl.estimators.qsdp.basis.hard import HardSolution, solve_hard
from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.problems.qsdp import checks, linear
from dkl.problems.qsdp.problem import QuadraticSDP, propagation
from dkl.quality import MIN_HELD_OUT, Quality, too_few
from dkl.resources import one_blas_thread
from dkl.side_information.pairs import Pairs
from dkl.solvers.qsdp.augmented import solve_augmented
from dkl.solvers.qsdp.interface import QSDPSolution
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.estimators.qsdp.basis.hard import HardCheckpointer
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows
    from dkl.problems.qsdp.linear import LinearSDP
    from dkl.solvers.qsdp.augmented import LinearSDPSolution


Matrix = NDArray[np.float64]
STEP = 7
"""Key of the random stream that draws the held-out pairs."""
HELD_OUT_TOL, MAX_STEPS = 0.1, 200
"""Relative gap of the kernel without the held-out pairs, and steps to it at most. Of 15 sets its AUC is that of a gap of 1e-6 to .0007 in
the mean, to .0084 at most, and 1e-2 is no nearer; the fit of all pairs begins there."""


@dataclass(frozen=True)
class HeldOutSolution:
    """Result without the held-out pairs: Y; tests (p,): pairs that it is measured on; seconds it took."""

    solution: QSDPSolution
    tests: NDArray[np.bool_]
    seconds: float

    @property
    def factor(self) -> Matrix:
        """Return the factor (m, r) of Y."""
        return self.solution.factor

    @property
    def arrays(self) -> dict[str, Matrix]:
        """Return the arrays that a run keeps of it."""
        gap = np.array([self.solution.certificate.relative_gap])
        return {"factor": np.ascontiguousarray(self.factor), "dual": self.solution.dual, "relative_gap": gap}


@dataclass(frozen=True)
class PropagationProblem:
    """Problem (12) of Wu, So, Li & Li 2009 in a basis, of checked pairs."""

    basis: Basis
    pairs: Pairs
    most_axes: int | None = None
    holdout: float = 0.0

    @classmethod
    def of(
        cls, rows: Rows, pairs: Pairs, m: int, settings: PropagationSettings, session: Session, bytes_used: int = 0,
        room: Room | None = None,
    ) -> PropagationProblem:  # fmt: skip
        """Build the problem from rows (n, d) and pairs of them."""
        graph = build_graph(
            rows, n_neighbors=min(settings.n_neighbors, int(rows.shape[0]) - 1), sigma=width_rule(settings.sigma, "local"),
            laplacian="normalized", memory_limit=settings.memory_limit, bytes_used=bytes_used, session=session,
        )  # fmt: skip
        if graph.n_components >= m:
            text = parts_text(graph, f"they are all that {m} eigenvectors show")
            if m == graph.n_components == 1:
                text = "n_basis=1 eigenvector of a connected graph is constant: no rows differ; raise n_basis, or learn from more rows"
            warnings.warn(text, DataWarning, stacklevel=2)
        return cls(Basis.of(graph, m, session, room=room), pairs, holdout=settings.holdout)

    @cached_property
    def problem(self) -> QuadraticSDP:
        """Return the quadratic SDP in Y."""
        known = self.pairs
        return propagation(
            self.basis.Q, np.asarray(known.must_link), np.asarray(known.cannot_link), np.asarray(known.weights)
        )

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a run stores in addition to the basis."""
        return {**pair_ends(self.pairs), "weights": np.array(self.pairs.weights, np.float64)}

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries: the numbers of pairs."""
        return {"n_must": self.pairs.n_must, "n_cannot": self.pairs.n_cannot}

    @cached_property
    def held_out(self) -> HeldOutSolution | None:
        """Learn without the held-out pairs, once; None where too few are, or nothing is to be held out."""
        began = time.perf_counter()
        masks = hold_out(len(self.basis.Q), self.pairs, self.holdout, STEP) if self.holdout else None
        if masks is None or np.count_nonzero(masks[1]) < MIN_HELD_OUT:
            return None
        learn, tests = masks
        ends, is_must = self.ends, self.pairs.sign > 0
        kept = Pairs(ends[learn & is_must], ends[learn & ~is_must], weights=self.pairs.weights[learn])
        with one_blas_thread():
            # By the low-rank method whatever `solver` is: to so large a gap it takes a small part of a conic fit's time.
            solution = solve_low_rank(replace(self, pairs=kept).problem, tol=HELD_OUT_TOL, max_iter=MAX_STEPS)
        return HeldOutSolution(solution, tests, time.perf_counter() - began)

    def hold_out(self, call: Callable[..., Any]) -> None:
        """Learn without the held-out pairs; see `BasisProblem.hold_out`."""
        # On a worker `call` sends a copy of this problem there: what it finds must come back into this one's cache.
        if "held_out" not in self.__dict__:  # where cached properties have their values
            self.__dict__["held_out"] = call(_held_out)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Return the rows (p, 2) of the pairs."""
        return np.stack([self.pairs.i, self.pairs.j], axis=1)

    @property
    def start(self) -> Matrix | None:
        """Return the start of the low-rank method; see `BasisProblem.start`."""
        held = self.held_out
        return None if held is None or not np.isfinite(held.factor).all() else held.factor

    def with_quality(self, found: BasisSolution, rows: Rows, watch: Watch) -> BasisSolution:
        """Return `found` with its quality; see `BasisProblem.with_quality`."""
        is_stopped = found.result.outcome.is_wanted and not found.result.outcome.converged
        held = None if is_stopped else self.held_out
        if held is None:
            reason = "" if is_stopped or not self.holdout else too_few(len(self.pairs.i), "pairs")
            return replace(found, result=replace(found.result, no_quality=reason))
        start, ends = time.perf_counter(), self.ends[held.tests]
        with one_blas_thread():
            # K of the held-out pairs alone; Q R of all rows would be n times as many products.
            first, second = (self.basis.Q[ends[:, k]] @ held.factor for k in (0, 1))
        quality = quality_on(first, second, self.pairs, held.tests, rows, stacklevel=5)
        seconds = held.seconds + time.perf_counter() - start
        result = found.result.with_quality(quality, seconds, "", watch.seconds)
        return replace(found, result=result, held_out=held.arrays)

    @classmethod
    def restored(cls, basis: Basis, found: dict[str, NDArray], settings: PropagationSettings) -> PropagationProblem:
        """Restore the problem from what `arrays` returned; InputError for pairs that are not of these rows."""
        pairs = Pairs(found["must_link"], found["cannot_link"], weights=found["weights"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # of contradictions, which the fit has reported
            return cls(basis, pairs.check(len(basis.Q), "keep"), holdout=settings.holdout)


def pair_ends(pairs: Pairs) -> dict[str, NDArray]:
    """Return the arrays of must-links and cannot-links that a run stores."""
    known = {"must_link": pairs.must_link, "cannot_link": pairs.cannot_link}
    return {name: np.array(ends, np.int64) for name, ends in known.items()}


def quality_on(
    first: Matrix, second: Matrix, pairs: Pairs, tests: NDArray[np.bool_], rows: Rows, *, stacklevel: int
) -> Quality:
    """Return the quality of a kernel by coordinates (t, r) of both ends of the held-out pairs `tests` (p,), t of them.

    Warns where distances of the rows (n, d) are better; stacklevel: as of `warn_of`.
    """
    ends = np.stack([pairs.i, pairs.j], axis=1)[tests]
    scores, how = np.einsum("pr,pr->p", first, second), f"{len(ends):,} of {len(tests):,} pairs"
    quality = quality_of_pairs(scores, similarities(rows, ends), pairs.sign[tests] > 0, how, DISTANCES)
    warn_if_worse(quality, stacklevel=stacklevel)
    return quality


def _held_out(posed: PropagationProblem) -> HeldOutSolution | None:
    """Return what is learned without the held-out pairs, wherever this runs."""
    return posed.held_out


PROVEN = ("relative_gap", "infeasibility", "min_eigenvalue")
"""Numbers of its certificate that a run keeps of the kernel without held-out pairs."""
HARD_HELD_OUT_TOL = 1e-2
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
        return linear.propagation(self.laplacian, self.pairs.must_link, self.pairs.cannot_link)

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
        problem, labels = linear.propagation(self.laplacian, ends[learn & is_must], ends[learn & ~is_must])
        held = solve_augmented(problem, tol=HARD_HELD_OUT_TOL, max_iter=self.settings.max_iter, room=planned.room)
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

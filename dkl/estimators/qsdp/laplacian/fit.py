"""RegPCP's problem: the basis of the normalized Laplacian, and the pairs."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.distributed_chebyshev import Room
from dkl.blocks.graph.neighbor_graph import build_graph, parts_text
from dkl.blocks.session import Session
from dkl.errors import DataWarning
from dkl.estimators.base.plain_models import DISTANCES, hold_out, quality_of_pairs, similarities
from dkl.estimators.base.progress import warn_if_worse
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.basis.fit import Basis, BasisSolution
from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.qsdp.problem import QuadraticSDP, propagation
from dkl.quality import MIN_HELD_OUT, Quality, too_few
from dkl.side_information.pairs import Pairs
from dkl.solvers.qsdp.interface import QSDPSolution
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.linalg.rows import Rows

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

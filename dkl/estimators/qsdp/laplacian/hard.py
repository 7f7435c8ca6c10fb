"""Pairwise constraint propagation with hard constraints (Wu et al. 2009, (5)-(9)), on all rows."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.errors import InputError
from dkl.estimators.base.plain_models import hold_out
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.basis.hard import HardSolution, solved_hard
from dkl.estimators.qsdp.basis.plan import plan_hard
from dkl.estimators.qsdp.laplacian.fit import STEP, quality_on
from dkl.problems.qsdp.linear import propagation
from dkl.quality import MIN_HELD_OUT, too_few
from dkl.side_information.pairs import Pairs
from dkl.solvers.qsdp.augmented import solve_augmented

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.blocks.graph.neighbor_graph import Graph
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.settings import PropagationSettings
    from dkl.linalg.rows import Rows
    from dkl.solvers.watch import Watch

HELD_OUT_TOL = 1e-2
"""Relative gap and infeasibility of the kernel without the held-out pairs."""


def propagated(rows: Rows, pairs: Pairs, settings: PropagationSettings, session: Session, watch: Watch) -> HardSolution:
    """Propagate checked pairs of checked rows (n, d): K_ii = 1, K_ij = 1 of must-links, 0 of cannot-links, exactly.

    InputError for pairs of different weights, which constraints have none of, and for those that contradict each other;
    MemoryBudgetError before any work.
    """
    if np.ptp(pairs.weights) > 0:
        raise InputError(
            'no effect with constraints="hard"', where="weights of pairs", got="pairs of different weights",
            wanted="pairs without weights", remedy='leave out the weights, or take constraints="soft"',
        )  # fmt: skip
    n, d = (int(size) for size in rows.shape)
    planned = plan_hard(
        n, d, n * (min(settings.n_neighbors, n - 1) + 1) + pairs.n_must + pairs.n_cannot, settings, session
    )
    # Pairs that contradict each other are refused before the search for neighbors.
    propagation(sparse.csr_array((n, n)), pairs.must_link, pairs.cannot_link)
    graph = build_graph(
        rows, n_neighbors=min(settings.n_neighbors, n - 1), sigma=width_rule(settings.sigma, "local"), laplacian="normalized",
        memory_limit=settings.memory_limit, session=session,
    )  # fmt: skip
    problem, labels = propagation(graph.laplacian, pairs.must_link, pairs.cannot_link)
    found = solved_hard(
        problem, graph.laplacian, graph.similarity, planned, settings, watch, seconds=graph.seconds, rows=labels
    )
    return _with_quality(found, rows, pairs, graph, settings, watch)


def _with_quality(
    found: HardSolution, rows: Rows, pairs: Pairs, graph: Graph, settings: PropagationSettings, watch: Watch
) -> HardSolution:
    """Return `found` with its quality, by a kernel without the held-out pairs; warn where distances of rows are better."""
    if not settings.holdout or (found.result.outcome.is_wanted and not found.result.outcome.converged):
        return found
    masks = hold_out(len(found.basis.Q), pairs, settings.holdout, STEP)
    if masks is None or np.count_nonzero(masks[1]) < MIN_HELD_OUT:
        return replace(found, result=replace(found.result, no_quality=too_few(len(pairs.i), "pairs")))
    began, (learn, tests), is_must = time.perf_counter(), masks, pairs.sign > 0
    ends: NDArray[np.int64] = np.stack([pairs.i, pairs.j], axis=1)
    problem, labels = propagation(graph.laplacian, ends[learn & is_must], ends[learn & ~is_must])
    held = solve_augmented(problem, tol=HELD_OUT_TOL, max_iter=settings.max_iter)
    first, second = (held.factor[labels[ends[tests, k]]] for k in (0, 1))
    quality = quality_on(first, second, pairs, tests, rows, stacklevel=6)
    result = found.result.with_quality(quality, time.perf_counter() - began, "", watch.seconds)
    return replace(found, result=result)

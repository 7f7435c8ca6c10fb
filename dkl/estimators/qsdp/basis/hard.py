"""Fit of a kernel under hard constraints: the plan of its memory, its solution, and the kernel by its own eigenvectors.

K = R R' is found on all rows, without a basis of the graph. What a learner shows of it is K = Q Y Q' all the same, Q the eigenvectors of K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.graph_plan import plan_graph
from dkl.blocks.graph.neighbor_graph import Graph
from dkl.blocks.memory.plan import PROCESS_BASE, Place, Plan
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.qsdp.basis.fit import RANK, Basis
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.qsdp.linear import LinearSDP, SDPCertificate
from dkl.resources import peak_rss
from dkl.solvers.qsdp.augmented import LinearSDPSolution, solve_augmented
from dkl.solvers.qsdp.augmented_steps import reduced
from dkl.solvers.result import Result, remedies
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from dkl.estimators.qsdp.basis.settings import BasisSettings
    from dkl.linalg.graph.laplacian import Similarity

Matrix = NDArray[np.float64]
COLUMNS = 40
"""Columns of a factor that the plan counts with; optima have a few more than the embedding has dimensions."""
FACTORS, TERM = 14, 400
"""Arrays (n, columns) alive in a Newton step; bytes of a constraint, and of each of its rows and columns."""
TERM_COLUMN = 120
MEASURE = "relative gap and infeasibility"
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled='steps no longer come nearer, as of exact distances that leave the kernel no room: take constraints="at-most", or loosen tol',
    numerical_error="a value stopped being finite: scale the rows",
)


@dataclass(frozen=True)
class HardSolution:
    """Kernel K = Q Y Q' by its eigenvectors Q (n, r), with Y diagonal; embedding (n, k), what is proven, and the result."""

    basis: Basis
    Y: Matrix = field(repr=False)
    embedding: Matrix = field(repr=False)
    solution: LinearSDPSolution
    result: Result

    @property
    def certificate(self) -> SDPCertificate:
        """Return the certificate."""
        found: SDPCertificate = self.solution.certificate
        return found


def plan_hard(n: int, d: int, terms: int, settings: BasisSettings, session: Session) -> Plan:
    """Return the plan of a fit of n rows of d features with at most `terms` constraints; MemoryBudgetError where it does not fit."""
    allowed = Place(1, 1).allowed(settings.memory_limit) or int(MEMORY_SHARE * machine_memory())
    k, columns = max(1, min(settings.n_neighbors, n - 1)), min(n, COLUMNS)
    graph = plan_graph(n, d, 8, k, None, n_slots=session.threads, n_tasks=session.threads, is_joined=True)
    items = {
        "the graph": 12 * n * (2 * k + 1),
        "the constraints": (TERM + TERM_COLUMN * columns) * terms,
        "factors of the kernel": 8 * FACTORS * n * columns,
    }
    stages = {"the search for neighbors": int(graph["peak"])}
    return Plan(
        "memory", 1, session.threads, PROCESS_BASE, items, {}, allowed, shape={"n": n, "terms": terms}, stages=stages,
        remedy="raise memory_limit, or take fewer rows or neighbors",
    ).validate()  # fmt: skip


def room_for_factors(memory_limit: int | None, items: Mapping[str, int]) -> float:
    """Return the bytes that are left to factors of sparse matrices next to `items`, bytes by name."""
    allowed = Place(1, 1).allowed(memory_limit) or int(MEMORY_SHARE * machine_memory())
    # Two of them are alive at a time.
    return max(0.0, 0.5 * (allowed - PROCESS_BASE - sum(items.values())))


def solved_hard(
    problem: LinearSDP,
    graph: Graph,
    similarity: Similarity,
    plan: Plan,
    settings: BasisSettings,
    watch: Watch,
    *,
    start: Matrix | None = None,
    rows: NDArray[np.int64] | None = None,
    most_axes: int | None = None,
    solve: Callable[[Watch], LinearSDPSolution] | None = None,
) -> HardSolution:
    """Solve under hard constraints and show the kernel by its eigenvectors; rows (n,): each row's row of the problem's K.

    start: a factor of K to start from; most_axes: columns of the embedding, at most; solve: another solver than the augmented Lagrangian.
    """
    before = watch.seconds
    if solve is not None:
        found = solve(watch)
    else:
        room = room_for_factors(settings.memory_limit, plan.items)
        found = solve_augmented(
            problem, tol=settings.tol, max_iter=settings.max_iter, start=start, room=room, watch=watch.stage("solve")
        )
    with one_blas_thread():
        factor = reduced(found.factor if rows is None else found.factor[rows], RANK)
        sizes = np.linalg.norm(factor, axis=0)
        Q = np.ascontiguousarray(factor / sizes)
        image = graph.laplacian @ Q
        values = np.einsum("ij,ij->j", Q, image)
        apart = float(np.linalg.norm(image - Q * values, axis=0).max())
    residual = apart / float(abs(graph.laplacian).sum(axis=1).max())
    basis = Basis(Q, values, residual, "constraints", similarity, {"graph": graph.seconds})
    seconds = {"graph": graph.seconds, "solve": watch.seconds - before, "total": watch.seconds}
    result = Result(
        found.outcome, found.n_iter, watch.history, seconds, peak_rss(), plan=plan.as_dict(),
        remedy=REMEDIES[found.outcome], proven=found.certificate.error, asked=settings.tol, measure=MEASURE,
    )  # fmt: skip
    return HardSolution(basis, np.diag(sizes**2), np.ascontiguousarray(factor[:, :most_axes]), found, result)


def refuse_soft(learner: Any, **defaults: object) -> None:
    """Raise InputError for a parameter of the soft form that is not at its default: it has no effect on hard constraints."""
    for name, default in defaults.items():
        value = getattr(learner, name)
        if value != default:
            raise InputError(
                f'no effect with constraints="{learner.constraints}"', where=name, got=repr(value), wanted=f"{name}={default!r}",
                remedy=f'leave out {name}, or take constraints="soft"',
            )  # fmt: skip

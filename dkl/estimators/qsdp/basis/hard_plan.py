"""Memory plan of a fit under hard constraints, made in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dkl.blocks.graph.graph_plan import plan_graph
from dkl.blocks.memory.plan import PROCESS_BASE, Place, Plan
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.session import Session
from dkl.estimators.qsdp.basis.plan import RANKS, ROWS_WRITTEN
from dkl.solvers.qsdp.interior import interior_bytes

if TYPE_CHECKING:
    from dkl.estimators.qsdp.basis.settings import BasisSettings

COLUMNS = 40
"""Columns of a factor that the plan counts with; optima have a few more than the embedding has dimensions."""
FACTORS, TERM = 14, 400
"""Arrays (n, columns) alive in a Newton step; bytes of a constraint, and of each of its rows and columns."""
TERM_COLUMN = 120
INSIDE = "the interior point"
"""Item of a plan where an interior point may be taken."""


@dataclass(frozen=True)
class HardPlan:
    """Plan of a fit; room: bytes that matrices of its solvers may have next to what is planned for certain."""

    plan: Plan
    room: float


def plan_hard(
    n: int, d: int, terms: int, settings: BasisSettings, session: Session, own_rows: int = 0, most_inside: int = 0
) -> HardPlan:
    """Return the plan of a fit of n rows of d features with at most `terms` constraints; MemoryBudgetError where it does not fit.

    own_rows: bytes of the rows, where they were read for this fit; most_inside: constraints up to which an interior point is taken.
    """
    allowed = Place(1, 1).allowed(settings.memory_limit) or int(MEMORY_SHARE * machine_memory())
    k, columns = max(1, min(settings.n_neighbors, n - 1)), min(n, COLUMNS)
    graph = plan_graph(n, d, 8, k, None, n_slots=session.threads, n_tasks=session.threads, is_joined=True)
    held = {"the graph": 12 * n * (2 * k + 1), "the constraints": (TERM + TERM_COLUMN * columns) * terms}
    items = {"rows": own_rows, **held, "factors of the kernel": 8 * FACTORS * n * columns}
    stages = {"the search for neighbors": own_rows + int(graph["peak"])}
    if getattr(settings, "holdout", 0):
        stages["measuring the quality"] = own_rows + 2 * 8 * n * d + RANKS * min(n, 1000) ** 2
    if own_rows:
        stages["the rows as they are kept"] = ROWS_WRITTEN * own_rows + sum(held.values())
    # Two factors of sparse matrices are alive at a time.
    room = max(0.0, 0.5 * (allowed - PROCESS_BASE - sum(items.values())))
    # As many constraints as rows less one, at least: the graph is connected.
    inside = interior_bytes(min(terms, most_inside), n) if n <= most_inside + 1 else 0
    if inside and inside <= room:
        items[INSIDE] = inside
    items = {name: size for name, size in items.items() if size}
    plan = Plan(
        "memory", 1, session.threads, PROCESS_BASE, items, {}, allowed, shape={"n": n, "terms": terms}, stages=stages,
        remedy="raise memory_limit, or take fewer rows or neighbors",
    )  # fmt: skip
    return HardPlan(plan.validate(), room)


def room_for_factors(memory_limit: int | None) -> float:
    """Return the bytes that factors of sparse matrices may have in a process that holds little else."""
    allowed = Place(1, 1).allowed(memory_limit) or int(MEMORY_SHARE * machine_memory())
    return max(0.0, 0.5 * (allowed - PROCESS_BASE))

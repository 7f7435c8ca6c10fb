"""Memory plans of fits in a smooth basis, and under hard constraints, made in advance: one guard for learners, plans and runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dkl.blocks.graph.distributed_products import Room
from dkl.blocks.graph.neighbor_search import plan_graph
from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan, spare_workers
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import DensePlace, dense_place
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.linalg.eigen.laplacian_eigenmaps import DENSE, basis_bytes, guards, most_owner_bytes, shared_bytes
from dkl.resources import format_bytes
from dkl.solvers.qsdp.conic import MEMORY, conic_bytes
from dkl.solvers.qsdp.steps import FACE, JOINT

if TYPE_CHECKING:
    from dkl.estimators.qsdp.settings import BasisSettings


BASES = 6
"""Arrays (n, m) alive while Y is found (Q, scaled Q, its products), or a run's parts are written."""
ROWS_WRITTEN = 4
"""Copies of the rows while a run's folder gets them: the rows, their bytes as summed and encoded."""
TERMS, SYSTEMS = 3, 4
"""Arrays (terms, m), and matrices of the equations that are factorized, alive in a Newton step."""
TERM = 100
"""Bytes of a squared term: its ends, as pairs and as rows of sparse maps, weight, target, residual."""


ONE_PROCESS = "a kernel is found by one process"
HERE = "all but the search for neighbors fits in this process"
"""Reason why workers stay idle where they find no eigenvectors."""
RANKS = 40
"""Bytes of each pair of rows in an embedding's quality: distances in three spaces, and their parts."""


@dataclass(frozen=True)
class BasisSizes:
    """Sizes of a problem: n rows of d features, m eigenvectors, squares of `terms` entries or distances.

    first: one more eigenvector is computed and left out.
    """

    n: int
    d: int
    m: int
    terms: int
    first: int = 0


def plan_basis(sizes: BasisSizes, settings: BasisSettings, session: Session, own_rows: int = 0) -> Plan:
    """Return the plan of `place_basis` alone."""
    return place_basis(sizes, settings, session, own_rows)[0]


def place_basis(
    sizes: BasisSizes, settings: BasisSettings, session: Session, own_rows: int = 0
) -> tuple[Plan, DensePlace]:
    """Plan the memory of the process that solves for Y, and of this one, which makes all else but the graph and large bases.

    That is the worker with the most room, or this process. own_rows: of the rows, where they were read for this fit.

    MemoryBudgetError, which names the largest m that fits, where there is no room.
    """
    allowed, place = _allowed(settings), Place.of(session)

    def planned(m: int) -> tuple[Plan, DensePlace]:
        here = _plan(replace(sizes, m=m), settings, session, place, own_rows, allowed)
        there = _on_worker(here, replace(sizes, m=m), settings, session, own_rows)
        return there or (here, DensePlace(None, 1))

    made, found = planned(sizes.m)
    if not made.fits:
        other = "" if settings.solver == "low-rank" else ', or solver="low-rank"'
        made = replace(made, remedy=_remedy(lambda m: planned(m)[0].fits, sizes.m) + other)
    if not _search(sizes, settings, place, _room(sizes, settings, place, own_rows, allowed))[0]:
        used = int(found.worker is not None)
        made = replace(made, idle_workers=spare_workers(session, used, ONE_PROCESS if used else HERE))
    return made.validate(), found


def _on_worker(
    here: Plan, sizes: BasisSizes, settings: BasisSettings, session: Session, own_rows: int
) -> tuple[Plan, DensePlace] | None:
    """Return the plan of a solve on the worker with the most room, where `here` is of this process; None: none has enough."""
    solve = _solve_items(sizes.m, sizes.terms, settings.solver)
    # The solver's own limit holds on a worker as well; the plan of this process has said so.
    if settings.solver != "low-rank" and settings.memory_limit is None and sum(solve.values()) > MEMORY:
        return None
    basis = {f"the basis of {sizes.m:,} eigenvectors": BASES * 8 * sizes.n * sizes.m}
    items = {"the terms": TERM * sizes.terms} | basis | solve
    base = PROCESS_BASE + WORKER_EXTRA
    # One thread, however many the worker has: `solve_basis` takes one BLAS thread in any place, for the same bits.
    place = dense_place(session, base + sum(items.values()), settings.memory_limit).for_rows(0)
    own = PROCESS_BASE + max(
        sum(_held(sizes, settings, own_rows).values()) + sum(basis.values()), *here.stages.values()
    )
    if place.worker is None or (here.limit is not None and own > here.limit):
        return None
    limit = place.limit or here.limit
    return replace(here, base=base, items=items, stages={}, limit=limit, threads=1, own_bytes=own), place


def room_for_basis(sizes: BasisSizes, settings: BasisSettings, session: Session, own_rows: int = 0) -> Room:
    """Return the memory that an accepted plan leaves for the search for eigenvectors."""
    return _room(sizes, settings, Place.of(session), own_rows, _allowed(settings))


def _allowed(settings: BasisSettings) -> int:
    allowed = Place(1, 1).allowed(settings.memory_limit) or int(MEMORY_SHARE * machine_memory())
    if settings.solver != "low-rank" and settings.memory_limit is None:
        # What the conic solver allows itself where no limit is given, so that the plan refuses what it would refuse later.
        allowed = min(allowed, PROCESS_BASE + MEMORY)
    return allowed


def _room(sizes: BasisSizes, settings: BasisSettings, place: Place, own_rows: int, allowed: int) -> Room:
    return Room.of(place, allowed, settings.memory_limit, sum(_held(sizes, settings, own_rows).values()))


def _held(sizes: BasisSizes, settings: BasisSettings, own_rows: int) -> dict[str, int]:
    """Return the bytes, by item, that are held next to the search for eigenvectors."""
    return {"rows": own_rows, "the graph and its terms": 12 * _entries(sizes, settings) + TERM * sizes.terms}


def _entries(sizes: BasisSizes, settings: BasisSettings) -> int:
    """Return the maximum number of entries of the Laplacian."""
    return sizes.n * (2 * max(1, min(settings.n_neighbors, sizes.n - 1)) + 1)


def _search(sizes: BasisSizes, settings: BasisSettings, place: Place, room: Room) -> tuple[str, int]:
    """Return (where eigenvectors are found, bytes here): workers if only they have enough memory."""
    n, count, entries = sizes.n, sizes.m + sizes.first, _entries(sizes, settings)
    here = basis_bytes(n, count, entries, room.here)
    if room.has(here) or not place.distributed or n <= max(DENSE, 2 * count):
        return "", here
    each = most_owner_bytes(n, count + guards(count), entries, place.processes)
    if not room.workers_have(each):
        # It fits in neither place: the bytes here are what the refusal names.
        return "", here
    where = f" on {place.processes} workers, {format_bytes(each)} each"
    return where, shared_bytes(n, count, entries, place.processes)


def _plan(
    sizes: BasisSizes, settings: BasisSettings, session: Session, place: Place, own_rows: int, allowed: int
) -> Plan:
    n, m, k = sizes.n, sizes.m, max(1, min(settings.n_neighbors, sizes.n - 1))
    graph = plan_graph(
        n, sizes.d, 8, k, None, n_slots=session.threads, n_tasks=session.threads, is_joined=bool(sizes.first)
    )
    held = _held(sizes, settings, own_rows)
    where, search = _search(sizes, settings, place, _room(sizes, settings, place, own_rows, allowed))
    stages = {
        "the search for neighbors": own_rows + int(graph["peak"]),
        f"finding {m:,} eigenvectors{where}": sum(held.values()) + search,
    }
    if getattr(settings, "holdout", 0):
        stages["measuring the quality"] = held["rows"] + 2 * 8 * n * sizes.d + RANKS * min(n, 1000) ** 2
    if own_rows:
        stages["the rows as they are kept"] = ROWS_WRITTEN * own_rows + held["the graph and its terms"] + 8 * n * m
        # The commit of the rows needs several copies at once, and no eigenvectors are computed meanwhile: a stage, not an item.
        held["rows"] = 0  # released then
    items = (
        held | {f"the basis of {m:,} eigenvectors": BASES * 8 * n * m} | _solve_items(m, sizes.terms, settings.solver)
    )
    shape = {"n": n, "n_basis": m, "terms": sizes.terms}
    items = {name: size for name, size in items.items() if size}
    return Plan("memory", 1, session.threads, PROCESS_BASE, items, {}, allowed, shape=shape, stages=stages)


def _solve_items(m: int, terms: int, solver: str) -> dict[str, int]:
    if solver != "low-rank":
        return {f'solver="{solver}"': conic_bytes(solver, m, terms)}
    return {"a Newton step": 8 * (TERMS * terms * m + SYSTEMS * (JOINT + FACE**2) ** 2)}


def _remedy(fits: Callable[[int], bool], m: int) -> str:
    """Return the remedy where m eigenvectors do not fit: the largest n_basis that fits, or more memory."""
    # By bisection: what m eigenvectors need is no formula of m, as the search may move to workers.
    low, high = 0, m
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return f"raise memory_limit, or take a smaller n_basis: {low:,} fit" if low else "raise memory_limit"


COLUMNS = 40
"""Columns of a factor that the plan counts with; optima have a few more than the embedding has dimensions."""
FACTORS, FACTOR_TERM = 14, 400
"""Arrays (n, columns) alive in a Newton step; bytes of a constraint, and of each of its rows and columns."""
TERM_COLUMN = 120
KERNELS = 4
"""Arrays (n, columns) that are kept of a kernel that was found."""
INSIDE = "the interior point"
"""Item of a plan where an interior point may be taken."""


@dataclass(frozen=True)
class HardPlan:
    """Plan of a fit; room: bytes that matrices of its solvers may have next to what is planned for certain."""

    plan: Plan
    room: float


def plan_hard(
    n: int,
    d: int,
    terms: int,
    settings: BasisSettings,
    session: Session,
    own_rows: int = 0,
    most_inside: int = 0,
    *,
    is_twice: bool = False,
) -> HardPlan:
    """Return the plan of a fit of n rows of d features with at most `terms` constraints; MemoryBudgetError where it does not fit.

    own_rows: bytes of the rows, where they were read for this fit; most_inside: constraints up to which an interior point is taken;
    is_twice: whether the quality is that of another solve, next to the kernel of the first.
    """
    from dkl.solvers.qsdp.interior import interior_bytes  # which a fit in a basis does not need

    allowed = Place(1, 1).allowed(settings.memory_limit) or int(MEMORY_SHARE * machine_memory())
    k, columns = max(1, min(settings.n_neighbors, n - 1)), min(n, COLUMNS)
    graph = plan_graph(n, d, 8, k, None, n_slots=session.threads, n_tasks=session.threads, is_joined=True)
    held = {"the graph": 12 * n * (2 * k + 1), "the constraints": (FACTOR_TERM + TERM_COLUMN * columns) * terms}
    items = {"rows": own_rows, **held, "factors of the kernel": 8 * FACTORS * n * columns}
    stages = {"the search for neighbors": own_rows + int(graph["peak"])}
    if getattr(settings, "holdout", 0):
        another = sum(items.values()) + FACTOR_TERM * terms + 8 * KERNELS * n * columns if is_twice else own_rows
        stages["measuring the quality"] = another + 2 * 8 * n * d + (0 if is_twice else RANKS * min(n, 1000) ** 2)
    if own_rows:
        stages["the rows as they are kept"] = ROWS_WRITTEN * own_rows + sum(held.values())
    # Two factors of sparse matrices are alive at a time.
    room = max(0.0, 0.5 * (allowed - PROCESS_BASE - sum(items.values())))
    # As many constraints as rows less one, at least: the graph is connected.
    inside = interior_bytes(min(terms, most_inside), n) if n <= most_inside + 1 else 0
    if inside and inside <= room:
        # Where it does not fit factors are all that is tried, without an error: they need far less.
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


def plan_unfolding(n: int, d: int, settings: UnfoldingSettings, session: Session, own_rows: int = 0) -> HardPlan:
    """Return the plan of unfolding n rows of d features; MemoryBudgetError where it does not fit. own_rows: see `plan_hard`."""
    from dkl.solvers.qsdp.interior import MOST_TERMS

    terms, inside = n * min(settings.n_neighbors, n - 1), MOST_TERMS if settings.constraints == "hard" else 0
    return plan_hard(n, d, terms, settings, session, own_rows, inside)


def plan_propagation(
    n: int, d: int, n_pairs: int, settings: BasisSettings, session: Session, own_rows: int = 0
) -> HardPlan:
    """Return the plan of a kernel of n rows of d features under `n_pairs` hard pairs; see `plan_hard`."""
    terms = n * (min(settings.n_neighbors, n - 1) + 1) + n_pairs
    return plan_hard(n, d, terms, settings, session, own_rows, is_twice=True)

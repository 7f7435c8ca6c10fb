"""Memory plan of a LogDet fit, made in advance: one guard for learners, for `dkl plan` and for runs.

Dense work is done in one place: the block of K0 at the rows that constraints touch is solved by one process, this one or
a worker. What the solver holds is `logdet_plan`'s to say; what a kernel on all rows, its principal components and what is
stored of it take in addition is counted here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.neighbor_search import plan_graph
from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan, spare_workers
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import DensePlace, dense_places, no_room
from dkl.errors import MemoryBudgetError
from dkl.estimators.base.plot_rows import MOST_ROWS as DRAWN
from dkl.estimators.base.prior_kernels import MOST_ROWS, SQUARES
from dkl.estimators.base.rules import PAIR_LOSSES
from dkl.estimators.base.side_information import SideInformation
from dkl.problems.logdet.plan import (
    DIRECT_BYTES,
    INCIDENCE,
    LogDetPlan,
    central_path_bytes,
    direct_bytes,
    logdet_plan,
    matrix_form_bytes,
)
from dkl.resources import format_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLoss
    from dkl.estimators.logdet.settings import LogDetKernelSettings, LogDetMetricSettings

ONE_PROCESS = "a kernel is found by one process"
"""Reason why workers stay idle."""
FEWER = "raise memory_limit, label fewer rows, or give fewer triplets, pairs or constraints: the rows that they touch count, and no others"
SIDE_BYTES = 400
"""Bytes of a constraint of INCIDENCE entries while it is made: its rows, its entries in the incidence and their sort keys."""
COMPONENT_SQUARES = 6
"""Arrays b x b while principal components of b rows are found: K, symmetric and centered, temporaries."""
METRIC_SQUARES = 6
"""Arrays d x d while W0 or the components of a metric are found."""
ROW_COPIES = 3
"""Copies of the rows that constraints touch: about their mean, with the root of W0, and as distances are measured."""
NEIGHBOR_BYTES = 400
"""Bytes of a row while the nearest others are searched."""
KEPT_SQUARES = 4
"""Copies of a matrix while it is written to a run's folder: itself, its bytes as summed and encoded."""


@dataclass(frozen=True)
class LogDetSizes:
    """Sizes of a LogDet problem.

    n rows of d features; p rows that c constraints touch, in q distinct entries of K.

    all_rows: whether K0 is made of all rows, and not of these p alone; rank: at most, of K0 there, or None if unknown.
    n_terms: entries of all constraints together, or None for at most INCIDENCE each; widest: at most, of one.
    """

    n: int
    d: int
    p: int
    c: int
    q: int
    all_rows: bool = False
    rank: int | None = None
    n_terms: int | None = None
    widest: int = INCIDENCE

    @property
    def side_bytes(self) -> int:
        """Return the bytes of the constraints while they are made."""
        return SIDE_BYTES * max(self.c, (self.n_terms or 0) // INCIDENCE)

    @property
    def basis(self) -> int:
        """Return the number of rows whose principal components are found."""
        return self.n if self.n <= MOST_ROWS else self.p


def sizes_of(side: SideInformation, kernel: UserKernel, loss: UserLoss, n_features: int) -> LogDetSizes:
    """Return the sizes of checked side information, for the kernel and loss named in the settings."""
    p, name = side.n_points, loss if isinstance(loss, str) else ""
    if (given := side.matrices) is not None:
        kernels, terms = _of_kernel(kernel, n_features), (len(given.value), max(INCIDENCE, given.widest))
        return LogDetSizes(side.n, n_features, p, given.count, given.n_entries, *kernels, *terms)
    if side.pairs is not None and (side.triplets is None or name in PAIR_LOSSES):
        c = links = side.pairs.n_must + side.pairs.n_cannot
    else:
        c, links = side.n_constraints, _compared(side)
    return LogDetSizes(side.n, n_features, p, c, _entries(p, links), *_of_kernel(kernel, n_features))


def _compared(side: SideInformation) -> int:
    """Return the number of distinct pairs of rows that triplets compare: at most what labels promised, where they made them."""
    assert side.triplets is not None
    # int64 before the product below: n^2 is beyond int32 from 46,341 rows on.
    a, similar, other = side.triplets.triplets.astype(np.int64).T
    first, second = np.concatenate([a, a]), np.concatenate([similar, other])
    return len(np.unique(np.minimum(first, second) * side.n + np.maximum(first, second)))


def sizes_of_labels(
    codes: NDArray[np.int64],
    n_in: int,
    n_out: int,
    kernel: UserKernel,
    loss: UserLoss,
    n_features: int,
    *,
    least: bool = False,
) -> LogDetSizes:
    """Return maximum sizes from labels alone, codes (n,), -1 for none, before rows are read for neighbors.

    least: minimum ones, of rows that are all near each other: what does not fit with these does not fit at all.
    """
    counts = np.bincount(codes[codes >= 0])
    # A row is no neighbor of itself.
    near, far = np.minimum(n_in, counts - 1), np.minimum(n_out, counts.sum() - counts)
    links = int((counts * (near + far)).sum())
    if least:  # a pair may be found from both its ends; alone in its class a row may be in none
        links, counts = -(-links // 2), np.where(near > 0, counts, 0)
    c = links if loss in PAIR_LOSSES else int((counts * near * far).sum())
    p = int(counts.sum())
    return LogDetSizes(len(codes), n_features, p, c, _entries(p, links), *_of_kernel(kernel, n_features))


def _entries(p: int, links: int) -> int:
    """Return the maximum number of entries of K in constraints: diagonal and compared pairs."""
    # Not more than K's upper triangle has, however often pairs are compared.
    return int(min(p * (p + 1) // 2, p + links))


def _of_kernel(kernel: UserKernel, n_features: int) -> tuple[bool, int | None]:
    """Return (whether K0 is made of all rows, its maximum rank or None if unknown).

    Comparing a callable to text may do anything.
    """
    name = kernel if isinstance(kernel, str) else ""
    return name in ("laplacian", "precomputed"), n_features if name == "linear" else None


def solve_items(sizes: LogDetSizes, solver: str) -> dict[str, int]:
    """Return the bytes, by name, of the solving process: K0's block and all that the solver makes of it.

    A block that turns out to be singular is factored, which takes more than inverting it: the larger counts.
    """
    ranks = (None, min(sizes.p, sizes.rank or sizes.p))
    found = max((_logdet(sizes, rank) for rank in ranks), key=lambda plan: plan.bytes)
    direct = direct_bytes(sizes.c, sizes.q, sizes.widest)
    # Without the direct step of all constraints, which the plan counts where it may be taken: it is another item below.
    solve = found.bytes - (direct if direct <= DIRECT_BYTES else 0)
    items = {f"{sizes.c:,} constraints on {sizes.p:,} rows": 8 * sizes.p**2 + solve + sizes.side_bytes}
    if solver == "paper":
        return items | {"the paper's dense matrices": matrix_form_bytes(sizes.p, sizes.q)}
    return items if solver == "pcg" else items | {"a direct step": min(DIRECT_BYTES, direct)}


def flops_of(sizes: LogDetSizes, rank: int | None = None) -> float:
    """Return the operations of a Newton step by conjugate gradients; rank: of K0's factor, where it has one."""
    return _logdet(sizes, rank).flops


def _logdet(sizes: LogDetSizes, rank: int | None) -> LogDetPlan:
    return logdet_plan(sizes.p, sizes.c, sizes.q, rank=rank, n_terms=sizes.n_terms, widest=sizes.widest)


def metric_items(sizes: LogDetSizes, solver: str) -> dict[str, int]:
    """Return the bytes, by name, of a fit of a metric of d features, whose K0 has the rows as its factor."""
    p, c, d = sizes.p, sizes.c, sizes.d
    q = _entries(p, 2 * c) if sizes.n_terms is None else sizes.q
    found, direct = _logdet(replace(sizes, q=q), d), direct_bytes(c, q, sizes.widest)
    # `learned` makes no block of a metric: K and M are not there.
    solve = found.bytes - (direct if direct <= DIRECT_BYTES else 0) - 4 * 8 * p**2
    items = {f"{c:,} constraints on {p:,} rows": solve + sizes.side_bytes}
    central = central_path_bytes(c, d)
    step = max(min(DIRECT_BYTES, direct), central if central <= DIRECT_BYTES else 0)
    if solver == "paper":
        return items | {"the paper's dense matrices": matrix_form_bytes(d, q)}
    return items if solver == "pcg" else items | {"a direct step": step}


@dataclass(frozen=True)
class KernelPlan:
    """Memory plan of a LogDet fit of a kernel, or of a metric in a run's folder.

    plan: bytes of the process that solves, and of this one; place: which that is, with its BLAS threads; threads: of
    BLAS for K0 and the components, or a metric; solver: "pcg" in the place of "auto" where a direct step has no room.
    """

    plan: Plan
    place: DensePlace
    threads: int
    solver: str


def plan_kernel(
    sizes: LogDetSizes, settings: LogDetKernelSettings, session: Session, *, has_folder: bool = False, own_rows: int = 0
) -> KernelPlan:
    """Plan the memory of a fit; MemoryBudgetError if neither a worker nor this process has enough.

    own_rows: bytes of the rows, where they were read for this fit; has_folder: the result is kept in a run's folder.
    """
    # This process's own share, also where a cluster has workers: it reads the rows and makes K0.
    allowed = Place(1, 1).allowed(settings.memory_limit) or int(MEMORY_SHARE * machine_memory())
    held = {"rows": own_rows, "K0 of all rows": 8 * sizes.n**2 if sizes.all_rows else 0}
    held = {name: size for name, size in held.items() if size}
    name = settings.kernel if isinstance(settings.kernel, str) else ""
    kept = max(sizes.p, sizes.n if name == "precomputed" else 0) if has_folder else 0
    stages = _stages(sizes, sum(held.values()), kept)
    if name == "laplacian":
        k = max(1, min(settings.n_neighbors, sizes.n - 1))
        graph = plan_graph(sizes.n, sizes.d, 8, k, None, n_slots=session.threads, n_tasks=session.threads, index="none")
        stages["the graph"] = own_rows + int(graph["peak"])
    # First with the direct step, which is faster; conjugate gradients need no room for it.
    methods = ["auto", "pcg"] if settings.solver == "auto" else [settings.solver]
    solving = {solver: solve_items(sizes, solver) for solver in methods}
    if settings.holdout:  # the kernel without the held-out part, and its parts at the rows that are left
        solving = {solver: items | {"measuring the quality": 3 * 8 * sizes.p**2} for solver, items in solving.items()}
    needed = {solver: process_bytes(session) + sum(items.values()) for solver, items in solving.items()}
    for solver, found in dense_places(session, needed, settings.memory_limit):
        place, around = found.for_rows(sizes.p), found.for_rows(max(sizes.basis, sizes.n if sizes.all_rows else 0))
        plan = _plan(place, solving[solver], held, stages, allowed, sizes, 3 * 8 * sizes.p**2)
        if plan.fits:
            break
    # Before the plan as a whole: where K0 alone does not fit, this says so, and the plan would name the solver.
    _check_own({name: size for name, size in stages.items() if name.startswith("the kernel matrix")}, allowed, sizes)
    plan.validate()
    _check_own(stages | {"what is sent to a worker": plan.own_bytes - PROCESS_BASE}, allowed, sizes)
    used = int(place.worker is not None)
    plan = replace(plan, idle_workers=spare_workers(session, used, ONE_PROCESS if used else no_room(needed)))
    return KernelPlan(plan, place, around.threads, solver)


def plan_metric(sizes: LogDetSizes, settings: LogDetMetricSettings, session: Session, own_rows: int = 0) -> KernelPlan:
    """Plan the memory of a fit of a metric in a run's folder; MemoryBudgetError if neither a worker nor this process has enough.

    own_rows: bytes of the rows as they were read, next to which they are dense in double precision.
    """
    allowed = Place(1, 1).allowed(settings.memory_limit) or int(MEMORY_SHARE * machine_memory())
    d, block = sizes.d, 8 * sizes.p * sizes.d
    held = {"rows": own_rows, "rows in double precision": 8 * sizes.n * d}
    held = {name: size for name, size in held.items() if size}
    before = sum(held.values())
    stages = {"W0": before + 8 * (2 * sizes.n * d + METRIC_SQUARES * d**2)}
    stages["the model"] = before + 8 * KEPT_SQUARES * (METRIC_SQUARES * d**2 + min(sizes.n, DRAWN) * d)
    methods = ["auto", "pcg"] if settings.solver == "auto" else [settings.solver]
    at_points = {"rows at the constraints": ROW_COPIES * block}
    if settings.holdout:  # the metric without the held-out part, and rows whose distances are its
        cut = 0 if settings.n_components is None else 8 * METRIC_SQUARES * d**2
        at_points["measuring the quality"] = ROW_COPIES * block + NEIGHBOR_BYTES * sizes.p + cut
    solving = {solver: metric_items(sizes, solver) | at_points for solver in methods}
    needed = {solver: process_bytes(session) + sum(items.values()) for solver, items in solving.items()}
    for solver, found in dense_places(session, needed, settings.memory_limit):
        place = found.for_rows(d)
        plan = _plan(place, solving[solver], held, stages, allowed, sizes, ROW_COPIES * block)
        if plan.fits:
            break
    plan.validate()
    _check_own(stages | {"what is sent to a worker": plan.own_bytes - PROCESS_BASE}, allowed, sizes)
    used = int(place.worker is not None)
    plan = replace(plan, idle_workers=spare_workers(session, used, ONE_PROCESS if used else no_room(needed)))
    return KernelPlan(plan, place, place.threads, solver)


def process_bytes(session: Session) -> int:
    """Return the bytes of the solving process before it holds any data."""
    return PROCESS_BASE + (WORKER_EXTRA if session.is_distributed else 0)


def _stages(sizes: LogDetSizes, held: int, kept: int) -> dict[str, int]:
    """Return the peak bytes of this process before and after the solve, with what it holds throughout.

    kept: rows of the largest matrix that goes to a run's folder.
    """
    b, p, n = sizes.basis, sizes.p, sizes.n
    made = 8 * SQUARES * n * n - 8 * n * n if sizes.all_rows else 0  # in addition to K0 itself, which is held
    components = 8 * (COMPONENT_SQUARES * b * b + 3 * b * p + 2 * p * p)
    found = {f"the kernel matrix of all {n:,} rows": made, "principal components": components}
    found |= {"the model": 8 * KEPT_SQUARES * kept**2}
    return {name: held + size for name, size in found.items() if size}


def _plan(
    place: DensePlace,
    items: dict[str, int],
    held: dict[str, int],
    stages: dict[str, int],
    allowed: int,
    sizes: LogDetSizes,
    block: int,
) -> Plan:
    """Return the plan in one place; block: bytes of what is made here of K0 or of rows, and once more as it is sent."""
    shape = {"n": sizes.n, "points": sizes.p, "constraints": sizes.c, "blas_threads": place.threads}
    made = Plan("memory", 1, place.threads, PROCESS_BASE, items, {}, place.limit or allowed, shape=shape, remedy=FEWER)
    if place.worker is None:
        return replace(made, items=held | items, stages=stages, limit=allowed)
    sent = sum(held.values()) + block
    base = PROCESS_BASE + WORKER_EXTRA
    return replace(made, base=base, own_bytes=PROCESS_BASE + max(sent, *stages.values()))


def _check_own(stages: dict[str, int], allowed: int, sizes: LogDetSizes) -> None:
    """Raise MemoryBudgetError, with a remedy, if a stage before or after the solve exceeds this process."""
    for name, needed in stages.items():
        if PROCESS_BASE + needed <= allowed:
            continue
        other = 'choose a kernel of rows such as "rbf": the rows with side information alone count then'
        remedy = other if sizes.all_rows and sizes.n > MOST_ROWS else "raise memory_limit"
        raise MemoryBudgetError(
            f"the plan does not fit: {name} takes {format_bytes(needed)} of {format_bytes(PROCESS_BASE + needed)} a process",
            where="memory plan", got=f"memory_limit {format_bytes(allowed)}",
            wanted=f"at least {format_bytes(PROCESS_BASE + needed)}", remedy=remedy,
        )  # fmt: skip

"""Memory plan of a pairwise fit and the solver for "auto", from settings, problem and session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory_plan import (
    BYTES_A_SECOND,
    PROCESS_BASE,
    ROUND_SECONDS,
    Place,
    Plan,
    fewer,
    idle_workers,
    plan_pairwise,
    what_helps,
)
from dkl.blocks.session import Session
from dkl.blocks.workers import spmd as owners
from dkl.errors import InputError, MemoryBudgetError
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.linalg.eigen.extreme_eigenvalues import DENSE
from dkl.linalg.rows.tree_sum import share
from dkl.linalg.slabs.small_systems import SmallSystems
from dkl.problems.pairwise.terms import PairwiseTerms, groups
from dkl.resources import machine_memory
from dkl.solvers.pairwise.descent import START_RANK
from dkl.stores.run import RunStore

GRAPH = "the graph, before that"
"""Name of the plan's stage before the iterations."""
AHEAD = 1
"""Slabs of a state on disk that are prefetched, where memory allows; two bring no more."""
EXCHANGES, CELL_SECONDS, ROW_SECONDS = 2, 1.5e-9, 3.4e-7
"""Costs of an iteration of ADMM: exchanges of sums; seconds of a thread for an entry of L or T in a column, and for the small system of a
pattern (benchmarks/system/million.md). Workers share out the systems only where these are many."""


def chosen_rank(problem: PairwiseTerms, settings: PairwiseSettings) -> int:
    """Return `rank`, or for "auto" the paper's rule (factored solver: 16, which it changes itself)."""
    if settings.rank != "auto":
        rank = int(settings.rank)
    elif settings.solver == "factored":
        rank = min(START_RANK, problem.n)
    else:
        rank = problem.paper_rank
    if rank > problem.n:
        raise InputError("a rank beyond the number of patterns", where="rank", got=rank, wanted=f"<= {problem.n}")
    return rank


def solver_of(problem: PairwiseTerms, settings: PairwiseSettings, session: Session, run: RunStore | None) -> str:
    """Resolve solver="auto" to "admm" or "factored"; a run with commits of ADMM keeps using it.

    See `solver_with_room`.
    """
    if settings.solver != "auto":
        return settings.solver
    begun = run is not None and (run.path / "generations").is_dir()  # `generations` would make the folder
    if run is not None and begun and next(run.generations().newest_first(), None) is not None:
        return "admm"
    shared = SharedPlan.of(problem, settings, session)
    return solver_with_room(problem.n, finish_rank(problem, settings) if shared is None else shared.rank, settings)


def solver_with_room(n: int, rank: int, settings: PairwiseSettings) -> str:
    """Resolve solver="auto" for n patterns, where `rank` columns of the factored solver fit in memory.

    The factored one proves a gap in a tenth of the time of ADMM and its finish from some thousand patterns on, at the same accuracy
    (benchmarks/pairwise/pair_defaults.md). But it chooses its own rank, holds its state in memory, and does nothing else than prove.
    """
    if settings.solver != "auto":
        return settings.solver
    proves = settings.goal is not None and settings.rank == "auto" and rank >= min(START_RANK, n)
    return "factored" if proves else "admm"


def make_plan(
    problem: PairwiseTerms, settings: PairwiseSettings, session: Session, *, has_store: bool, refuse: bool = True
) -> Plan:
    """Plan in memory if that fits, else on disk if there is a store; else MemoryBudgetError (if `refuse`)."""
    settings = replace(settings, solver=solver_of(problem, settings, session, None))
    rank = chosen_rank(problem, settings)
    entries, place = int(problem.laplacian.nnz), Place.of(session)
    if settings.solver == "factored":
        shared = SharedPlan.of(problem, settings, session)
        plan = factored_plan(place, rank, entries, problem.targets, settings, shared, has_store=has_store)
        return place.checked(plan, settings.memory_limit) if refuse else plan
    return admm_plan(session, rank, entries, problem.targets, settings, has_store=has_store, refuse=refuse)


def admm_plan(
    session: Session,
    rank: int,
    laplacian_entries: int,
    targets: sparse.csr_array,
    settings: PairwiseSettings,
    *,
    has_store: bool,
    refuse: bool = True,
) -> Plan:
    """Plan ADMM at the session's place, or in this process alone where workers would stay idle."""
    place = Place.of(session)
    if place.distributed:
        # Workers are worth their messages only for a state that does not fit here, or an iteration that they end sooner.
        here, there = (
            plan_at(at, rank, laplacian_entries, targets, settings, has_store=has_store, refuse=False)
            for at in (Place(1, session.threads), place)
        )
        if here.fits and here.placement == "memory":
            sent = there.exchanged_per_iteration / there.processes / BYTES_A_SECOND
            sooner = _seconds(here, targets.nnz, settings)
            later = _seconds(there, targets.nnz, settings) + EXCHANGES * ROUND_SECONDS + sent
            if idle := idle_workers(place, sooner, later, here.process_bytes):
                return replace(here, idle_workers=idle)
    return plan_at(place, rank, laplacian_entries, targets, settings, has_store=has_store, refuse=refuse)


def _seconds(plan: Plan, target_entries: int, settings: PairwiseSettings) -> float:
    """Estimate the seconds of an iteration's arithmetic, by numbers known before the graph."""
    n, slabs = plan.shape["n"], plan.shape["slabs"]
    # Symmetric, so up to twice the neighbors of a row, and its diagonal.
    entries = min(n * (2 * settings.n_neighbors + 1), n * n) + target_entries
    slab = entries * plan.shape["width"] * CELL_SECONDS
    at_once = min(slabs, plan.processes * plan.threads)
    return -(-slabs // at_once) * slab + n * ROW_SECONDS / plan.threads


def plan_at(
    place: Place,
    rank: int,
    laplacian_entries: int,
    targets: sparse.csr_array,
    settings: PairwiseSettings,
    *,
    has_store: bool,
    refuse: bool = True,
) -> Plan:
    """Plan ADMM for existing targets and a graph of which the number of entries is known."""
    systems = SmallSystems.of(targets)

    def plan(
        on_disk: bool, rank: int = rank, threads: int = place.threads, dtype: str = settings.dtype, ahead: int = 0
    ) -> Plan:
        return plan_pairwise(
            int(targets.shape[0]),
            rank,
            dtype,
            laplacian_entries=laplacian_entries,
            target_entries=targets.nnz,
            dot_products=systems.n_pairs + systems.indices.size,
            gathered_rows=systems.gathered.size,
            processes=place.processes,
            threads=threads,
            memory_limit=place.allowed(settings.memory_limit),
            on_disk=on_disk,
            ahead=ahead,
            checkpoints=has_store,
            driver_shares=not place.distributed,
        )

    def on_disk(**changes: Any) -> Plan:
        # A slab that is read ahead saves waiting, and costs a slab more: given up before the fit is.
        plans = (plan(True, ahead=ahead, **changes) for ahead in (AHEAD, 0))
        return next((each for each in plans if each.fits), plan(True, **changes))

    def best(**changes: Any) -> Plan:
        in_memory = plan(False, **changes)
        best = in_memory if in_memory.fits or not has_store else on_disk(**changes)
        if not has_store or settings.goal is None:
            return best
        finish = search_bytes(best.shape["n"], min(MAX_FINISH_RANK, best.shape["n"]))
        return replace(best, disk=best.disk | {"state of the finish": finish})

    chosen = best()
    if chosen.fits:
        return chosen
    ways = fewer("lower rank to {}", lambda rank: best(rank=rank).fits, rank)
    if not place.distributed:
        ways += fewer("use {} thread(s)", lambda threads: best(threads=threads).fits, place.threads)
    if settings.dtype != "float32":
        ways.append(("use dtype='float32'", lambda: best(dtype="float32").fits))
    if not has_store:
        ways.append(("give work_dir so that the state can be kept on disk", lambda: plan(True).fits))
    chosen = replace(chosen, remedy=what_helps(ways))
    return place.checked(chosen, settings.memory_limit) if refuse else chosen


# Memory and rank of the factored solver of pairs, in this process or shared out over workers.

FINISH_ARRAYS = 14
"""Arrays of the factor's size, at its padded width: see `dkl/solvers/pairwise/low_rank.py`."""
KEPT_ARRAYS, BLOCK_ARRAYS, BLOCK_BESIDE = 5, 6, 48
"""Arrays while the gap is certified: of the factor's size, of a Ritz block, and its extra columns."""
WORTHWHILE = 0.25
"""Share of this process's memory, at START_RANK columns, from which a cluster's workers share rows.

They send each other what their rows meet: below that, time lost outweighs memory saved
(benchmarks/pairwise/pair_workers.md).
"""
IDLE = "the workers stay idle: the factored solver fits here, and on them would exchange more than it computes"
MAX_FINISH_RANK = 64
LEAST_FINISH_RANK = 4


def finish_rank(problem: PairwiseTerms, settings: PairwiseSettings) -> int:
    """Return the largest rank at which the factored solver fits in this process; see `rank_within`."""
    return rank_within(problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz), settings)


def fold_rank(n: int, laplacian_entries: int, target_entries: int, settings: PairwiseSettings) -> int:
    """Return the largest rank of the kernels that score held-out pairs; 0 if none fits in memory."""
    return rank_within(n, laplacian_entries, target_entries, settings, kept=settings.cv + 1)


def check_room(n: int, laplacian_entries: int, target_entries: int, settings: PairwiseSettings) -> int:
    """Return the largest rank of the kernels that choose gamma; MemoryBudgetError if no rank fits."""
    rank = fold_rank(n, laplacian_entries, target_entries, settings)
    if rank == 0:
        raise MemoryBudgetError(
            "the folds' kernels, which are learned in this process, do not fit", where="gamma='cv' or wrong_pairs='find'",
            got=f"memory_limit {settings.memory_limit}",
            remedy="raise memory_limit, lower cv, or give gamma as a number and wrong_pairs='trust'",
        )  # fmt: skip
    return rank


def rank_within(n: int, laplacian_entries: int, target_entries: int, settings: PairwiseSettings, kept: int = 0) -> int:
    """Return the largest rank, at most 64 and n, at which the factored solver fits in this process.

    It takes 14 arrays (n, width) in double precision, width at most the next power of two, or 5 of them and 6 of (n, width + 48),
    plus graph and pairs, and `kept` factors that are held meanwhile. 0 where no rank of 4 or more fits.
    """
    most = min(MAX_FINISH_RANK, n)
    if settings.memory_limit is None:
        return most
    room = settings.memory_limit - PROCESS_BASE - _matrices(laplacian_entries, target_entries, kept)
    width = MAX_FINISH_RANK
    while 8 * n * _columns(width, kept) > room:
        # By halves, as arrays are padded to powers of two: no rank between would need less.
        width //= 2
        if width < LEAST_FINISH_RANK:
            return 0
    return min(width, most)


def _matrices(laplacian_entries: int, target_entries: int, kept: int) -> int:
    """Return the bytes of S, the filter's two multiples of it, the arrays on T's pattern, and the pairs."""
    scores = 24 * bool(kept)  # of each pair, which is two entries, at three gammas
    # 12 bytes an entry of a CSR matrix: a double and the int32 of its column.
    return 3 * 12 * laplacian_entries + (96 + 8 * kept + scores) * target_entries


def _columns(width: int, kept: int) -> int:
    """Return the columns of all arrays (n, .) of the factored solver."""
    certified = (KEPT_ARRAYS + BLOCK_ARRAYS) * width + BLOCK_ARRAYS * BLOCK_BESIDE
    return max(FINISH_ARRAYS * width, certified) + kept * width


@dataclass(frozen=True)
class SharedPlan:
    """Memory plan of the factored solver with its rows on workers.

    n rows, factors of at most `rank` columns, `limit` bytes each (None: any).
    """

    n: int
    rank: int
    limit: int | None
    remedy: str

    @classmethod
    def of(cls, problem: PairwiseTerms, settings: PairwiseSettings, session: Session) -> SharedPlan | None:
        """Plan sharing the rows between workers; None where this process does the work.

        Sharing needs a cluster with enough memory, and a problem that is large for this process.
        """
        n, here = problem.n, finish_rank(problem, settings)
        most = min(MAX_FINISH_RANK, n)
        if (
            not session.is_distributed
            or n <= DENSE
            or (here == most and 8 * n * _columns(START_RANK, 0) < WORTHWHILE * machine_memory())
        ):
            return None
        place = Place.of(session)
        allowed = place.allowed(settings.memory_limit)
        limit = None if allowed is None else allowed - PROCESS_BASE - WORKER_EXTRA
        plan = cls(n, most, limit, place.more_memory)
        bounds, width = plan.bounds(place.processes), MAX_FINISH_RANK
        sizes = [sizes_of(problem.laplacian, problem.targets, bounds, k) for k in range(len(bounds) - 1)]
        # By halves, as in `rank_within`.
        while limit is not None and width > 0 and max(owner_bytes(size, width) for size in sizes) > limit:
            width = width // 2 if width > LEAST_FINISH_RANK else 0
        return replace(plan, rank=min(width, n))

    def bounds(self, workers: int) -> tuple[int, ...]:
        """Return (first row of each, n) for at most `workers` workers."""
        found = groups(self.n)
        return (*(found[part.start][0] for part in share(len(found), workers)), self.n)

    def largest_part(self, targets: sparse.csr_array, laplacian_entries: int, workers: int, width: int) -> int:
        """Estimate the largest worker's bytes at this width, before the graph is built.

        laplacian_entries: of L, in each worker.
        """
        bounds, empty = self.bounds(workers), sparse.csr_array((self.n, self.n))
        sizes = [sizes_of(empty, targets, bounds, k) for k in range(len(bounds) - 1)]
        return max(owner_bytes((own, met, laplacian_entries, entries), width) for own, met, _, entries in sizes)

    def check(self, problem: PairwiseTerms, bounds: tuple[int, ...], index: int, where: str) -> None:
        """Raise MemoryBudgetError if the worker at `where` cannot hold its rows (fewer workers than planned)."""
        sizes = sizes_of(problem.laplacian, problem.targets, bounds, index)
        needed = owner_bytes(sizes, max(self.rank, LEAST_FINISH_RANK))
        remedy = f"{self.remedy}, or more workers"
        owners.check_room(needed, self.limit, len(bounds) - 1, "the factored solver", where, remedy)


def sizes_of(
    laplacian: sparse.csr_array, targets: sparse.csr_array, bounds: tuple[int, ...], index: int
) -> tuple[int, int, int, int]:
    """Return a worker's numbers of rows, rows of others that its entries meet, entries of L and of T."""
    lo, hi = bounds[index], bounds[index + 1]
    met, entries = np.zeros(bounds[-1], bool), []
    for matrix in (laplacian, targets):
        own = matrix.indices[matrix.indptr[lo] : matrix.indptr[hi]]
        met[own] = True
        entries.append(len(own))
    met[lo:hi] = False
    return hi - lo, int(met.sum()), entries[0], entries[1]


def owner_bytes(sizes: tuple[int, ...], width: int) -> int:
    """Return the bytes of the factored solver for a worker's rows, at this padded width.

    Counted are its arrays, those parts of them that hold others' rows
    (V, a direction, two of the multipliers, four in single precision, and one of all columns that are mixed), S thrice, and the pairs.

    sizes: see `sizes_of`.
    """
    n_own, n_halo, laplacian_entries, target_entries = sizes
    arrays = n_own * _columns(width, 0) + n_halo * (6 * width + MAX_FINISH_RANK)
    return 8 * arrays + 3 * 16 * laplacian_entries + 128 * target_entries


def factored_plan(
    place: Place,
    rank: int,
    laplacian_entries: int,
    targets: sparse.csr_array,
    settings: PairwiseSettings,
    shared: SharedPlan | None,
    *,
    has_store: bool,
) -> Plan:
    """Plan the factored solver at the largest rank that it may reach; it starts at `rank`."""
    n, entries = int(targets.shape[0]), int(targets.nnz)
    most = rank_within(n, laplacian_entries, entries, settings) if shared is None else shared.rank
    width = max(most, min(LEAST_FINISH_RANK, n))
    held = {"graph and targets": 12 * laplacian_entries + 48 * entries}
    if shared is None:
        arrays, matrices = 8 * n * _columns(width, 0), _matrices(laplacian_entries, entries, 0)
        items = {"factor, gradients and directions": arrays, "gradient matrix and pairs": matrices} | held
    else:
        owners, own = max(place.processes, 1), laplacian_entries // max(place.processes, 1)
        items = {"a worker's rows, and those they meet": shared.largest_part(targets, own, owners, width)}
    disk = {"state of the solver": search_bytes(n, width)} if has_store else {}
    disk |= {"result": 8 * n * width, "graph": 12 * laplacian_entries} if has_store else {}
    return Plan(
        placement="memory",
        processes=1 if shared is None else place.processes,
        threads=place.threads,
        base=PROCESS_BASE,
        items=items,
        disk=disk,
        limit=settings.memory_limit if shared is None else place.allowed(settings.memory_limit),
        shape={"n": n, "rank": rank, "dtype": settings.dtype},
        remedy="raise memory_limit, or use solver='admm', which works out of core",
        idle_workers=IDLE if shared is None and place.distributed else "",
        own_bytes=0 if shared is None else PROCESS_BASE + held["graph and targets"] + 2 * 8 * n * width,
    )


def search_bytes(n: int, width: int) -> int:
    """Return the disk bytes of the factored solver's state at `width` columns, current and in progress.

    See estimators/pairwise/search_state.py.
    """
    # V, L V and two directions in double, and the power iteration's block in single.
    within_a_round = 4 * 8 * width + 4 * width
    # The factor and the best one, and the certificate's Ritz vectors.
    of_a_round = 8 * (2 * width + width + BLOCK_BESIDE)
    return 2 * n * (within_a_round + of_a_round)

"""Memory plan of a pairwise fit and the solver for "auto", from settings, problem and session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scipy import sparse

from dkl.blocks.memory.execution_limits import BYTES_A_SECOND, ROUND_SECONDS, Place, idle_workers
from dkl.blocks.memory.plan import Plan, plan_pairwise
from dkl.blocks.memory.plan_remedies import fewer, what_helps
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.pairwise.factored_plan import MAX_FINISH_RANK, SharedPlan, factored_plan, finish_rank, search_bytes
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.linalg.slabs.small_system_terms import SmallSystems
from dkl.problems.pairwise.terms import PairwiseTerms
from dkl.solvers.pairwise.state import START_RANK
from dkl.stores.run import RunStore

GRAPH = "the graph, before that"
"""Name of the plan's stage before the iterations."""
AHEAD = 1
"""Slabs of a state on disk that are prefetched, where memory allows; two bring no more."""
EXCHANGES, CELL_SECONDS, ROW_SECONDS = 2, 1.5e-9, 3.4e-7
"""Costs of an iteration of ADMM: exchanges of sums; seconds of a thread for an entry of L or T in a column, and for the small system of a
pattern (benchmarks/million.md). Workers share out the systems only where these are many."""


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
    begun = run is not None and (run.path / "generations").is_dir()  # which asking for them would make
    if run is not None and begun and next(run.generations().newest_first(), None) is not None:
        return "admm"
    shared = SharedPlan.of(problem, settings, session)
    return solver_with_room(problem.n, finish_rank(problem, settings) if shared is None else shared.rank, settings)


def solver_with_room(n: int, rank: int, settings: PairwiseSettings) -> str:
    """Resolve solver="auto" for n patterns, where `rank` columns of the factored solver fit in memory.

    The factored one proves a gap in a tenth of the time of ADMM and its finish from some thousand patterns on, at the same accuracy
    (benchmarks/pair_defaults.md). But it chooses its own rank, holds its state in memory, and does nothing else than prove.
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

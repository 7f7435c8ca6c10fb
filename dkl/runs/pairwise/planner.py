"""Plan of a run of pairs, from shapes and pairs alone."""

from __future__ import annotations

from dataclasses import replace

from scipy import sparse

from dkl.blocks.graph.graph_plan import graph_session, plan_graph
from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import PROCESS_BASE, Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.pairwise.extension import LEAST_ROWS, index_bytes, work_bytes
from dkl.estimators.pairwise.held_out import check_pairs, gammas_to_compare, holds_out_for_certain, largest_gamma
from dkl.estimators.pairwise.plan import (
    GRAPH,
    MAX_FINISH_RANK,
    SharedPlan,
    admm_plan,
    check_room,
    chosen_rank,
    factored_plan,
    rank_within,
    solver_with_room,
)
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.terms import PairwiseTerms
from dkl.quality import MAX_HELD_OUT
from dkl.resources import machine_memory
from dkl.runs.inputs.row_files import check_values
from dkl.runs.output.prediction_plan import Needs, applied_bytes, with_later
from dkl.runs.pairwise.inputs import PairwiseInputs
from dkl.runs.planner import Estimate, Planner

INDEX_SHARE = 0.25
"""Share of the memory that a search tree of the patterns may take."""


class PairwisePlanner(Planner[PairwiseSettings, PairwiseInputs]):
    """Planner of pairwise runs: KL-ADMM or the factored solver, the graph, and the choice of gamma."""

    def plan(self, found: PairwiseInputs, settings: PairwiseSettings, session: Session) -> Plan:
        """Return the plan of the iterations; MemoryBudgetError if they, or the graph before them, do not fit."""
        place, rows = Place.of(session), found.rows
        graph = graph_bytes(found, settings, Place.of(graph_session(rows, session, settings.memory_limit)))
        entries = min(rows.n * (2 * settings.n_neighbors + 1), rows.n**2)  # at most: where no neighbor is mutual
        problem = PairwiseTerms.of(sparse.csr_array((rows.n, rows.n)), found.pairs, largest_gamma(settings, 1.0))
        shared = SharedPlan.of(problem, settings, session)
        if holds_out_for_certain(settings) and shared is None:
            check_room(rows.n, entries, problem.targets.nnz, settings)
        room = rank_within(rows.n, entries, problem.targets.nnz, settings) if shared is None else shared.rank
        settings = replace(settings, solver=solver_with_room(rows.n, room, settings))
        rank, targets = chosen_rank(problem, settings), problem.targets
        if settings.solver == "factored":
            made = place.checked(
                factored_plan(place, rank, entries, targets, settings, shared, has_store=True), settings.memory_limit
            )
        else:
            made = admm_plan(session, rank, entries, targets, settings, has_store=True)
        made = replace(made, stages={GRAPH: graph})
        if made.placement == "disk":
            return made  # a fit out of core makes factors larger than memory, which `dkl transform` would hold
        needs = extension_needs(rows, max(rank, room), 8, settings.n_neighbors, settings.memory_limit)
        later = {"dkl transform": applied_bytes(needs, rows, place)}
        return with_later(made, place, settings.memory_limit, later)

    def estimate(self, found: PairwiseInputs, settings: PairwiseSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes and seconds, for `dkl plan`."""
        from dkl.runs.pairwise.estimate import estimate  # by the solvers themselves

        return estimate(found, settings, plan, session)

    def disk_bytes(self, found: PairwiseInputs, settings: PairwiseSettings, plan: Plan) -> int:
        """Return the bytes of the run's folder, with what is stored while pairs are held out."""
        return plan.disk_bytes + choice_bytes(found, settings)

    def check_values(self, found: PairwiseInputs, settings: PairwiseSettings) -> None:
        """Raise InputError for a value not finite, gamma or weights the Laplacian cannot take, or few pairs."""
        check_pairs(found.rows.n, found.pairs, settings, 1.0 if settings.laplacian == "normalized" else None)
        check_values(found.rows)


def extension_needs(learned: RowSource, rank: int, itemsize: int, n_neighbors: int, memory_limit: int | None) -> Needs:
    """Return the needs of the factor's rows for other patterns than those that were learned from."""
    most = index_share(memory_limit)
    return Needs(
        learned.n * rank * itemsize + learned.own_bytes + index_bytes(learned, most),
        lambda count: work_bytes(learned, rank, min(n_neighbors, learned.n), count),
        itemsize * rank,
        LEAST_ROWS,
    )


def index_share(memory_limit: int | None) -> float:
    """Return the bytes that a search tree of the patterns may take."""
    return INDEX_SHARE * (memory_limit or machine_memory())


def graph_bytes(inputs: PairwiseInputs, settings: PairwiseSettings, place: Place) -> int:
    """Return peak bytes of the graph stage with patterns read at once; MemoryBudgetError if too many."""
    rows = inputs.rows
    plan = plan_graph(
        rows.n,
        rows.n_features,
        rows.dtype.itemsize,
        settings.n_neighbors,
        settings.memory_limit,
        n_slots=place.threads,
        n_tasks=place.threads * place.processes,
        chunk_rows=rows.rows_per_chunk,
        density=min(1.0, rows.array.nnz / (rows.n * rows.n_features)) if rows.is_sparse else 1.0,
        in_place=rows.is_in_place,
        bytes_used=PROCESS_BASE + rows.own_bytes,
    )
    return int(plan["peak"]) + rows.own_bytes


def choice_bytes(inputs: PairwiseInputs, settings: PairwiseSettings) -> int:
    """Return disk bytes of the folds' factors, one of which is replaced, and of the scores of pairs."""
    gammas, m = gammas_to_compare(inputs.pairs, settings, 1.0), len(inputs.pairs.i)
    factor, held_out = 8 * inputs.rows.n * MAX_FINISH_RANK, 3 * 8 * min(m, MAX_HELD_OUT) if settings.holdout else 0
    if gammas is None:
        return 2 * factor + 3 * held_out if held_out else 0
    return factor * (settings.cv + 1) + 4 * 8 * len(gammas) * m + held_out

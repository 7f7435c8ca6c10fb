"""Runs of pairs: the graph is built from the patterns and stored with the pairs; after that neither file is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from dkl.blocks.graph.neighbor_search import graph_session, plan_graph
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.base.plot_rows import MOST_PATTERNS
from dkl.estimators.pairwise.arrays import history
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
from dkl.estimators.pairwise.store import has_graph
from dkl.problems.pairwise.terms import PairwiseTerms
from dkl.quality import MAX_HELD_OUT
from dkl.runs.inputs.files import Files, Lazy, stored_table
from dkl.runs.inputs.readers import check_values, load_rows, naming_the_file, peek_rows, read_pairs
from dkl.runs.interrupt import Interrupt
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.pairwise import DECLARATION
from dkl.runs.pairwise.stored import (
    Patterns,
    extension_needs,
    factor_blocks,
    facts,
    open_factor,
    similarity_of,
    training_data,
    transformed,
)
from dkl.runs.predictions import applied_bytes, with_later
from dkl.runs.registry import Estimate, Facts, Notes, RunKind
from dkl.runs.report import Comparison
from dkl.side_information.pairs import Pairs
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.estimators.pairwise.learner import PairwiseKernelLearner
    from dkl.stores.seals import Json


# -- inputs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairwiseInputs:
    """Patterns and pairs that fit together, and the files that they came from."""

    files: Files
    rows: RowSource
    pairs: Pairs

    def fingerprints(self) -> Json:
        """Return the fingerprints of both input files for the run's configuration."""
        return self.files.fingerprints(data=(self.rows.n, self.rows.n_features))


def read(files: Files, settings: PairwiseSettings, *, values: bool) -> PairwiseInputs:
    """Read patterns and pairs, or the patterns' shape without `values`; InputError for impossible sizes."""
    rows = (load_rows if values else peek_rows)(files["data"], settings.memory_limit, files.data_table)
    n = rows.n
    if n < 2:
        got = f"shape {(n, rows.n_features)}"
        raise InputError("too few patterns", where=str(files["data"]), got=got, wanted="2 or more")
    if settings.n_neighbors >= n:
        wanted = f"at most {n - 1}, the number of other patterns"
        raise InputError("too many neighbors", where="--n-neighbors", got=settings.n_neighbors, wanted=wanted)
    if settings.rank != "auto" and int(settings.rank) > n:
        raise InputError("a rank beyond the number of patterns", where="--rank", got=settings.rank, wanted=f"<= {n}")
    with naming_the_file(files["pairs"]):
        pairs = read_pairs(files, rows).check(n, settings.contradictions)
    return PairwiseInputs(files, rows, pairs)


# -- plan ---------------------------------------------------------------------------------------------------------------


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


# -- runs ---------------------------------------------------------------------------------------------------------------


IN_MEMORY = 64_000_000
"""Bytes of a factor that is clustered in memory; a larger one is read from disk by blocks."""


class PairwiseRuns(RunKind[PairwiseSettings, PairwiseInputs]):
    """Runs of KL-ADMM and the factored solver in a folder."""

    declaration = DECLARATION
    made_from = ("graph", "pairs", "similarity", "held_out", "choice")
    drawn_rows = MOST_PATTERNS
    reads_to_draw = True

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
        from dkl.runs.pairwise.fit import estimate  # by the solvers themselves

        return estimate(found, settings, plan, session)

    def disk_bytes(self, found: PairwiseInputs, settings: PairwiseSettings, plan: Plan) -> int:
        """Return the bytes of the run's folder, with what is stored while pairs are held out."""
        return plan.disk_bytes + choice_bytes(found, settings)

    def check_values(self, found: PairwiseInputs, settings: PairwiseSettings) -> None:
        """Raise InputError for a value not finite, gamma or weights the Laplacian cannot take, or few pairs."""
        check_pairs(found.rows.n, found.pairs, settings, 1.0 if settings.laplacian == "normalized" else None)
        check_values(found.rows)

    def fit(
        self,
        run: RunStore,
        found: Lazy[PairwiseInputs],
        settings: PairwiseSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.runs.pairwise.fit import fit

        return fit(run, found, settings, session, watch, notes)

    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run that `dkl info` shows."""
        return facts(run)

    def claims(self, run: RunStore, found: Lazy[PairwiseInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.pairwise import verify

        return verify.claims(run, budget)

    def load(self, run: RunStore) -> PairwiseKernelLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.pairwise.load import load_learner

        learner, known = load_learner(run, history(run)), training_data(run)
        if known is not None:  # new patterns are placed among those learned from, which are read when that is asked for
            learner.n_features_in_, learner.graph_.similarity = int(known["shape"][1]), similarity_of(run)
            learner._fit_rows = Patterns(known, None, learner.scale_, stored_table(run))
        return learner

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of `dkl transform` for the rows of a file."""
        return transformed(run, request)

    def coordinates(self, run: RunStore) -> NDArray | None:
        """Return the rows of the factor: all of a small one, which is read and checked at once."""
        stored = open_factor(run)
        if stored.nbytes > IN_MEMORY:
            return stored
        return np.concatenate([rows for _, rows in factor_blocks(run)])

    def written_by_workers(self, run: RunStore, settings: PairwiseSettings) -> list[str]:
        """Return the run's folder, to which workers write commits and the arrays of a run out of core."""
        return [str(run.path)]

    def needs_inputs(self, run: RunStore) -> bool:
        """Return whether the inputs are needed: only until graph and pairs are stored."""
        if has_graph(run):
            return False
        if not isinstance(run.config.get("inputs"), dict):
            raise StoreError(
                "no graph is stored, nor what to build it from", where=str(run.path), remedy="begin a new run"
            )
        return True

    def goes_further(self, run: RunStore, changes: Json) -> bool:
        """Return whether a smaller gap than proven is asked for, any if none was, or more iterations."""
        report = run.report()
        gap = float(report.get("certificate", {}).get("relative_gap", 0.0))
        goal = replace(PairwiseSettings(), target_gap=changes.get("target_gap")).goal
        if goal is not None and (goal < gap or report.get("outcome") == "stationary"):
            return True
        # By the limit, not the number made: the factored solver may take FINISH_SHARE times as many iterations.
        allowed = int(report.get("settings", {}).get("max_iter", report.get("n_iter", 0)))
        return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > allowed

    def interrupt(self, again: str, settings: PairwiseSettings) -> Interrupt:
        """Return the handler of Ctrl-C, answered after the iteration under way."""
        return Interrupt(again, settings.max_iter)

    def has_progress(self, run: RunStore) -> bool:
        """Return whether graph and pairs are stored."""
        return has_graph(run)

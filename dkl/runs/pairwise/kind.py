"""Runs of pairs: the graph is built from the patterns and stored with the pairs; after that neither file is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from dkl.blocks.graph import build_graph
from dkl.blocks.plan import PROCESS_BASE
from dkl.blocks.session import Session
from dkl.errors import StoreError
from dkl.estimators.pairwise.checks import largest_gamma
from dkl.estimators.pairwise.choice import fit_pairs, problem_of
from dkl.estimators.pairwise.history import history
from dkl.estimators.pairwise.learner import PairwiseKernelLearner
from dkl.estimators.pairwise.load import load_learner
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.shown import MOST_PATTERNS
from dkl.estimators.pairwise.store import load_pairs, load_problem, notes_of, report_of, store_problem, write_result
from dkl.pairs import Pairs
from dkl.problems.pairwise import PairwiseKernel
from dkl.runs.comparison import Comparison
from dkl.runs.interrupt import Interrupt
from dkl.runs.kind import Facts, Notes, RunKind
from dkl.runs.lazy import Lazy
from dkl.runs.output import Output, Request
from dkl.runs.pairwise import DECLARATION, transform, verify
from dkl.runs.pairwise.facts import facts, graph_notes, has_problem
from dkl.runs.pairwise.inputs import PairwiseInputs
from dkl.runs.pairwise.planner import PairwisePlanner
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore
from dkl.stores.sealed_json import write_json


class PairwiseRuns(PairwisePlanner, RunKind[PairwiseSettings, PairwiseInputs]):
    """KL-ADMM in a run's folder."""

    declaration = DECLARATION
    made_from = ("graph", "pairs", "choice")
    drawn_rows = MOST_PATTERNS
    reads_to_draw = True

    def fit(
        self,
        run: RunStore,
        found: Lazy[PairwiseInputs],
        settings: PairwiseSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """From wherever the run stands to its stored result and report."""
        seconds: dict[str, float] = {}
        if has_problem(run):
            problem, pairs = load_problem(run, largest_gamma(settings, 1.0)), load_pairs(run)
        else:
            problem, pairs = _prepared(run, found, settings, session, seconds)
        fitted = fit_pairs(problem, pairs, settings, session, run=run, watch=watch, seconds=seconds)
        write_result(run, fitted, report_of(fitted, graph_notes(run)) | notes())
        return fitted.result

    def facts(self, run: RunStore) -> Facts:
        """What `dkl info` says of the run."""
        return facts(run)

    def claims(self, run: RunStore, found: Lazy[PairwiseInputs], budget: int) -> Iterator[Comparison]:
        """The report's numbers beside the same recomputed, by verify.py beside this file."""
        return verify.claims(run, budget)

    def load(self, run: RunStore) -> PairwiseKernelLearner:
        """The fitted estimator, from the run alone."""
        learner, known = load_learner(run, history(run)), transform.training_data(run)
        if known is not None:  # new patterns are placed among those learned from, which are read when that is asked for
            learner.n_features_in_, learner._fit_rows = int(known["shape"][1]), transform.Patterns(known)
        return learner

    def apply(self, run: RunStore, request: Request) -> Output:
        """What the command's verb writes for the rows of a file."""
        return transform.transformed(run, request)

    def written_by_workers(self, run: RunStore, settings: PairwiseSettings) -> list[str]:
        """The run's folder: commits, and the working arrays of a run out of core."""
        return [str(run.path)]

    def needs_inputs(self, run: RunStore) -> bool:
        """Only until graph and pairs are stored."""
        if has_problem(run):
            return False
        if not isinstance(run.config.get("inputs"), dict):
            raise StoreError(
                "no graph is stored, nor what to build it from", where=str(run.path), remedy="begin a new run"
            )
        return True

    def goes_further(self, run: RunStore, changes: dict[str, Any]) -> bool:
        """Whether a smaller gap is asked for than is proven, any gap where none was, or more iterations than were allowed."""
        report = run.report()
        gap = float(report.get("certificate", {}).get("relative_gap", 0.0))
        goal = replace(PairwiseSettings(), target_gap=changes.get("target_gap")).goal
        if goal is not None and (goal < gap or report.get("outcome") == "stationary"):
            return True
        # By what was allowed, not by what was made: the factored solver may take FINISH_SHARE times as many of its own.
        allowed = int(report.get("settings", {}).get("max_iter", report.get("n_iter", 0)))
        return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > allowed

    def interrupt(self, again: str, settings: PairwiseSettings) -> Interrupt:
        """Ctrl-C is answered after the iteration under way."""
        return Interrupt(again, settings.max_iter)

    def is_begun(self, run: RunStore) -> bool:
        """Whether graph and pairs are stored."""
        return has_problem(run)


def _prepared(
    run: RunStore, found: Lazy[PairwiseInputs], settings: PairwiseSettings, session: Session, seconds: dict[str, float]
) -> tuple[PairwiseKernel, Pairs]:
    """The problem, whose graph is built and stored with the pairs, and these; seconds by stage."""
    graph = build_graph(
        found().rows,
        n_neighbors=settings.n_neighbors,
        sigma=settings.sigma,
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        beside=PROCESS_BASE + found().rows.own_bytes,
        session=session,
    )
    run.config["graph"] = {**notes_of(graph), "summary": graph.describe()}
    write_json(run.path / "config.json", run.config)
    pairs = found().pairs
    found.release()  # the patterns' memory is the iterations' now
    problem = problem_of(graph.laplacian, pairs, settings)
    store_problem(run, graph.laplacian, pairs, notes_of(graph))
    click.echo(graph.describe())
    seconds["graph"] = graph.seconds
    return problem, pairs

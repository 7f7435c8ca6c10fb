"""A fit of pairs in a run's folder: the graph and the pairs, stored for whoever resumes it, then the solver."""

from __future__ import annotations

import click

from dkl.blocks.graph import build_graph
from dkl.blocks.plan import PROCESS_BASE
from dkl.blocks.session import Session
from dkl.estimators.common.rules import width_rule
from dkl.estimators.pairwise.checks import largest_gamma
from dkl.estimators.pairwise.choice import fit_pairs, problem_of
from dkl.estimators.pairwise.kept import load_pairs
from dkl.estimators.pairwise.quality import plain_scores, with_quality
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.store import load_plain, load_problem, notes_of, report_of, store_problem, write_result
from dkl.pairs import Pairs
from dkl.problems.pairwise import PairwiseKernel
from dkl.runs.kind import Notes
from dkl.runs.lazy import Lazy
from dkl.runs.pairwise.facts import graph_notes, has_problem
from dkl.runs.pairwise.inputs import PairwiseInputs
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore
from dkl.stores.sealed_json import write_json


def fit(
    run: RunStore,
    found: Lazy[PairwiseInputs],
    settings: PairwiseSettings,
    session: Session,
    watch: Watch,
    notes: Notes,
) -> Result:
    """See `RunKind.fit`."""
    seconds: dict[str, float] = {}
    if has_problem(run):
        problem, pairs = load_problem(run, largest_gamma(settings, 1.0)), load_pairs(run)
    else:
        problem, pairs = _prepared(run, found, settings, session, seconds)
    fitted = fit_pairs(problem, pairs, settings, session, run=run, watch=watch, seconds=seconds)
    with_quality(fitted, problem, pairs, load_plain(run), settings, session, watch, stacklevel=2)
    write_result(run, fitted, report_of(fitted, graph_notes(run)) | notes())
    return fitted.result


def _prepared(
    run: RunStore, found: Lazy[PairwiseInputs], settings: PairwiseSettings, session: Session, seconds: dict[str, float]
) -> tuple[PairwiseKernel, Pairs]:
    """The problem, whose graph is built and stored with the pairs, and these; seconds by stage."""
    graph = build_graph(
        found().rows,
        n_neighbors=settings.n_neighbors,
        sigma=width_rule(settings.sigma, "average"),
        warns_of_cuts=False,  # the pairs join what weights cut
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        beside=PROCESS_BASE + found().rows.own_bytes,
        session=session,
    )
    run.config["graph"] = {**notes_of(graph), "summary": graph.describe()}
    write_json(run.path / "config.json", run.config)
    pairs = found().pairs
    plain = plain_scores(found().rows, pairs, settings)
    found.release()  # the patterns' memory is the iterations' now
    problem = problem_of(graph.laplacian, pairs, settings)
    store_problem(run, graph, pairs, plain)
    click.echo(graph.describe())
    seconds["graph"] = graph.seconds
    return problem, pairs

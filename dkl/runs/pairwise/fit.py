"""Fit of pairs in a run's folder: graph and pairs, stored to be resumed from, then the solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.memory.plan import PROCESS_BASE
from dkl.blocks.session import Session
from dkl.estimators.base.rules import width_rule
from dkl.estimators.pairwise.choice import fit_pairs, problem_of, scale_of
from dkl.estimators.pairwise.fold_store import graph_notes, has_graph, load_pairs
from dkl.estimators.pairwise.held_out import HeldOutPairs, largest_gamma
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.store import load_problem, report_of, store_problem, write_result
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.runs.echo import echo
from dkl.runs.inputs.files import Lazy
from dkl.runs.kind import Notes
from dkl.side_information.pairs import Pairs
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.runs.pairwise.kind import PairwiseInputs


def fit(
    run: RunStore,
    found: Lazy[PairwiseInputs],
    settings: PairwiseSettings,
    session: Session,
    watch: Watch,
    notes: Notes,
) -> Result:
    """Fit or resume the run; see `RunKind.fit`."""
    seconds: dict[str, float] = {}
    if has_graph(run):
        problem, pairs = load_problem(run, largest_gamma(settings, 1.0)), load_pairs(run)
    else:
        problem, pairs = _prepared(run, found, settings, session, seconds)
    held = HeldOutPairs.load(run, pairs, problem.n, settings, scale_of(problem.laplacian))
    with one_blas_thread():
        fitted = fit_pairs(problem, pairs, settings, session, held=held, run=run, watch=watch, seconds=seconds)
    write_result(run, fitted, notes(report_of(fitted, graph_notes(run))))
    return fitted.result


def _prepared(
    run: RunStore, found: Lazy[PairwiseInputs], settings: PairwiseSettings, session: Session, seconds: dict[str, float]
) -> tuple[PairwiseKernel, Pairs]:
    """Return the problem and pairs, once the graph is built and stored with them; `seconds`: by stage."""
    graph = build_graph(
        found().rows,
        n_neighbors=settings.n_neighbors,
        sigma=width_rule(settings.sigma, "average"),
        warns_of_cuts=False,  # the pairs join what weights cut
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        bytes_used=PROCESS_BASE + found().rows.own_bytes,
        session=session,
    )
    pairs = found().pairs
    held = HeldOutPairs.of(found().rows, pairs, settings, scale_of(graph.laplacian))
    found.release()  # the patterns' memory is the iterations' now
    problem = problem_of(graph.laplacian, pairs, settings)
    store_problem(run, graph, pairs, held)
    echo(graph.describe())
    seconds["graph"] = graph.seconds
    return problem, pairs

"""A fit of pairs in a run's folder: the problem for resuming, the report, and the learner."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from dkl.blocks.graph.neighbor_graph import Graph
from dkl.blocks.session import Session
from dkl.estimators.base.run_arrays import describe_names, log_machine
from dkl.estimators.base.run_arrays import report_of as common_report
from dkl.estimators.base.standardize import store_scale
from dkl.estimators.pairwise.arrays import FOLDS_FOLDER, SEARCH_FOLDER, SIMILARITY_FOLDER
from dkl.estimators.pairwise.fit import PairwiseFit
from dkl.estimators.pairwise.fold_store import load_pairs
from dkl.estimators.pairwise.held_out import HeldOutPairs, holds_out_for_certain
from dkl.estimators.pairwise.plan import SharedPlan, check_room, make_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.linalg.rows.column_scale import ColumnScale
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.side_information.pairs import Pairs
from dkl.stores.graph import read_csr, write_csr_blocks
from dkl.stores.run import RunStore
from dkl.stores.seals import drawn

ROWS_A_BLOCK = 65_536


def notes_of(graph: Graph) -> dict[str, object]:
    """Return what a run and its report say of the graph, the attributes of its part."""
    return {
        "sigma": graph.sigma,
        "n_neighbors": graph.n_neighbors,
        "laplacian": graph.kind,
        "summary": graph.describe(),
    }


def store_problem(run: RunStore, graph: Graph, pairs: Pairs, held: HeldOutPairs | None = None) -> None:
    """Store what resuming needs: the graph in block CSR, its local widths, pairs, and those to hold out."""
    if held is not None:
        held.store(run)
    if graph.similarity.is_local:
        run.write_arrays(SIMILARITY_FOLDER, {"widths": graph.similarity.widths})
    run.write_pairs(pairs.must_link, pairs.cannot_link, pairs.weights if pairs.is_weighted else None)
    # A damaged or half-written one of an earlier attempt: zarr would write into it, chunk next to chunk.
    shutil.rmtree(run.path / "graph", ignore_errors=True)
    write_csr_blocks(str(run.path / "graph"), graph.laplacian, max(1, min(graph.n, ROWS_A_BLOCK)), notes_of(graph))
    run.seal_part("graph")  # last: by this seal `has_graph` knows that all of the above is there


def load_problem(run: RunStore, gamma: float) -> PairwiseKernel:
    """Load the pairwise problem of the stored graph and pairs."""
    pairs = load_pairs(run)
    run.check_part("graph")
    laplacian = read_csr(str(run.path / "graph"))
    return PairwiseKernel.of(laplacian, pairs, gamma)


def report_of(fitted: PairwiseFit, graph: dict[str, object]) -> dict[str, object]:
    """Build the JSON report of a run."""
    return common_report(
        fitted.result,
        fitted.settings.as_dict(),
        rank=fitted.rank,
        solver=fitted.solver,
        gamma=fitted.gamma,
        certificate=fitted.certificate.as_dict(),
        graph=graph,
        **({} if fitted.result.wrong_pairs is None else {"wrong_pairs": fitted.result.wrong_pairs.as_dict()}),
    )


def write_result(run: RunStore, fitted: PairwiseFit, report: dict[str, object]) -> None:
    """Mark the run complete, and delete the states it was resumed from. Raises DiskError."""
    proof = fitted.certificate
    # Before the states go: a kill between the two leaves a complete run with states too many.
    run.write_report(report, proof.lift, proof.pair_lift)
    for folder in (SEARCH_FOLDER, FOLDS_FOLDER):
        shutil.rmtree(run.path / folder, ignore_errors=True)


@dataclass(frozen=True)
class FitStorage:
    """Run that a fit is stored in, if any; or else disk space for a state that may not fit in memory."""

    run: RunStore | None
    scratch: RunStore | None


@contextmanager
def kept_in(
    path: Path | None,
    problem: PairwiseKernel,
    pairs: Pairs,
    graph: Graph,
    settings: PairwiseSettings,
    session: Session,
    held: HeldOutPairs | None = None,
    scale: ColumnScale | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[FitStorage]:
    """Yield a new run at `path` with its problem stored; without a path disk space, if needed.

    MemoryBudgetError, before anything is written, for a fit that fits nowhere.
    """
    # Without a limit here, all memory of this process may be used, and no state goes to a disk.
    needs_scratch = settings.memory_limit is not None or session.is_distributed
    make_plan(problem, settings, session, has_store=path is not None or needs_scratch)
    if holds_out_for_certain(settings) and SharedPlan.of(problem, settings, session) is None:
        check_room(problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz), settings)
    with tempfile.TemporaryDirectory(prefix="dkl-") as temporary:
        run = scratch = None
        if path is not None:
            config = {"task": "pairwise", "settings": settings.as_dict(), **drawn(), **describe_names(names)}
            run = RunStore.create(path, config)
            log_machine(run)
            store_scale(run, scale)
            store_problem(run, graph, pairs, held)
        elif needs_scratch:
            scratch = RunStore.create(Path(temporary) / "run.zarr", {"settings": settings.as_dict()})
        try:
            with run.at_its_place() if run is not None else nullcontext():
                yield FitStorage(run, scratch)
        finally:
            for store in (run, scratch):
                if store is not None:
                    store.close()

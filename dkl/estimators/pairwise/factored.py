"""The factored solver of a fit, in this process or with the rows shared out over workers.

Both run the same program (`solved`), one with all rows and one with a worker's, and end with the same bytes. What this process holds
in the second case is the graph, the pairs, the start and the result; each worker its rows of everything and those of others that
its entries meet, and all that is small. A lost worker sends the solve back to the last commit, or, where no run's folder keeps any, to
its start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.blocks.workers.exchange import Exchange
from dkl.blocks.workers.spmd import JointWork, Tell
from dkl.errors import NumericalError, StateLost
from dkl.estimators.pairwise.plan import SharedPlan
from dkl.estimators.pairwise.search_state import (
    CommitCallback,
    LowRankSnapshotNotes,
    SearchStore,
    Source,
    from_snapshot,
    spans_of,
    to_snapshot,
)
from dkl.linalg.rows.shared_rows import SharedRows
from dkl.problems.pairwise.certificate import Certificate
from dkl.problems.pairwise.low_rank import FactoredPairwise, smooth_start
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import groups
from dkl.solvers.pairwise.descent import START_RANK, FactoredState, Keep
from dkl.solvers.pairwise.low_rank import FactoredSolution, solve_to_gap
from dkl.solvers.watch import Outcome, Watch

LOG = logging.getLogger("dkl")
SECONDS = 1.0
"""Seconds of iterations to request at a time, where no callback wants to see each."""


@dataclass(frozen=True)
class LowRankRequest:
    """Request to the factored solver.

    The relative gap to prove, the rank to start at (None: its own), limits, and the type of the returned factor.
    """

    gap: float
    rank: int | None
    max_rank: int
    max_iter: int
    seed: int
    dtype: str


def solved(
    problem: FactoredPairwise,
    start: NDArray | None,
    request: LowRankRequest,
    watch: Watch,
    resume_from: Callable[[], LowRankSnapshotNotes] | None,
    keep: Keep | None,
) -> FactoredSolution:
    """Solve for the factor of these rows, in the requested type, with the certificate of that very factor.

    start: (n_own, any rank), None for the problem's own. resume_from: reads a state of these rows to resume from, in place of the start;
    keep: is offered states. NumericalError where a value is not finite.
    """
    found = solve_to_gap(
        problem,
        start,
        target_gap=request.gap,
        rank=request.rank,
        max_rank=request.max_rank,
        max_iter=request.max_iter,
        seed=request.seed,
        watch=watch,
        resume_from=None if resume_from is None else lambda: from_snapshot(resume_from(), problem.rows),
        keep=keep,
    )
    if found.outcome is Outcome.NUMERICAL_ERROR:
        raise NumericalError("a value stopped being finite", where="the factored solver", remedy="lower gamma")
    # The certificate is of the factor that is handed out, so a rounded one is certified once more.
    if request.dtype == "float64":
        return found
    factor = found.factor.astype(request.dtype)
    point = problem.at(problem.padded(factor))
    certificate, _ = problem.certify(point, request.gap, request.seed)
    # The best bound that there is, where the quick one does not reach the goal.
    if certificate.relative_gap > request.gap:
        certificate, _ = problem.certify(point, request.gap, request.seed, last=True)
    return replace(found, factor=factor, certificate=certificate)


def solved_here(
    problem: PairwiseKernel,
    start: NDArray | None,
    request: LowRankRequest,
    watch: Watch,
    threads: int,
    store: SearchStore | None = None,
    resume_from: LowRankSnapshotNotes | None = None,
) -> FactoredSolution:
    """Solve in this process. store: stores the state; resume_from: the stored state of all rows to resume from.

    InterruptedRunError where the watch means to resume it, once the state is committed.
    """
    # Threads are started here and end with the solve, also after an error.
    factored = problem.factored(threads)
    try:
        read = None if resume_from is None else partial(resume_from.part, spans_of(problem, 0, problem.n))
        if store is None:
            return solved(factored, start, request, watch, read, None)
        commits = CommitCallback(store, watch)
        return solved(factored, start, request, watch.stage(callbacks=[commits]), read, commits.keep)
    finally:
        factored.close()


@dataclass(frozen=True)
class PairPart:
    """A worker's rows of the pairwise problem.

    start: its rows of a given one, or, where is_own, of the solver's own; resume_from: of a state in place of
    it, if any, which is taken out.
    """

    bounds: tuple[int, ...]
    index: int
    groups: list[tuple[int, int]]
    laplacian: sparse.csr_array
    targets: sparse.csr_array
    weights: NDArray[np.float64] | None
    gamma: float
    start: NDArray | None
    is_own: bool
    resume_from: list[LowRankSnapshotNotes]
    request: LowRankRequest


def solve_part(part: PairPart, others: Exchange, threads: int, tell: Tell) -> FactoredSolution:
    """Solve a worker's part; runs on the worker, as a `Joint`."""
    rows = SharedRows(part.bounds, part.index, others, threads=threads, groups=part.groups)
    own_start = part.start if part.is_own else None
    problem = FactoredPairwise(
        part.laplacian, part.targets, part.gamma, weights=part.weights, rows=rows, own_start=own_start
    )
    try:
        start = None if part.is_own else part.start
        read = part.resume_from.pop if part.resume_from else None
        found = solved(problem, start, part.request, Watch([tell]), read, partial(_offer, tell))
    finally:
        problem.close()
    # The history is recorded by the driver while it runs, and need not be sent back.
    return replace(found, history=[])


def _offer(tell: Tell, state: Callable[[], FactoredState]) -> None:
    """Publish the state of this worker's rows."""
    tell.offer(lambda: to_snapshot(state()))


def solved_on_workers(
    problem: PairwiseKernel,
    start: NDArray | None,
    request: LowRankRequest,
    watch: Watch,
    session: Session,
    plan: SharedPlan,
    store: SearchStore | None = None,
    resume_from: LowRankSnapshotNotes | None = None,
) -> tuple[FactoredSolution, int]:
    """Solve on the session's workers; return (solution, how often lost workers sent it back).

    store, resume_from: see `solved_here`.

    WorkersLostError without any worker, or if some are lost in each of `waiting.attempts()` without a state kept between them;
    InterruptedRunError as there.
    """
    rank, own = min(request.rank or START_RANK, request.max_rank, problem.n), start
    silence = waiting.Silence()
    # An attempt that has committed more than the one before counts as progress.
    for attempt in waiting.attempts(lambda: None if store is None else store.rule.committed):
        if attempt:
            resume_from = None if store is None else store.load()
            back = "its start" if resume_from is None else f"iteration {resume_from.notes['count']}"
            LOG.warning("a worker was lost: the factored solver continues from %s", back)
            # Rows beyond the state that is resumed from are computed again.
            watch.roll_back(-1 if store is None or resume_from is None else store.first + resume_from.notes["count"])
        # Made here, as Gauss-Seidel sweeps need all rows in one process.
        if own is None and resume_from is None:
            own = smooth_start(problem.laplacian, problem.targets, problem.gamma, problem.weights, rank, request.seed)
        work = None
        try:
            cut = partial(_cut, problem, own, start is None, resume_from, request, plan)
            work = JointWork(session, solve_part, cut, silence)
            _watched(work, watch, store)
            return _put_together(problem, work, watch), attempt
        except StateLost:
            continue
        finally:
            if work is not None:
                work.close()
    raise AssertionError("waiting.attempts() ends with WorkersLostError")


def _cut(
    problem: PairwiseKernel,
    start: NDArray | None,
    is_own: bool,
    resume_from: LowRankSnapshotNotes | None,
    request: LowRankRequest,
    plan: SharedPlan,
    workers: int,
) -> Sequence[Callable[[str], PairPart]]:
    """Return the functions that make the parts, for at most `workers` workers."""
    bounds = plan.bounds(workers)

    def part(index: int, address: str) -> PairPart:
        own = slice(bounds[index], bounds[index + 1])
        laplacian, targets = problem.laplacian[own], problem.targets[own]
        # Checked before the part is sent: the exact bytes of this worker's rows.
        plan.check(problem, bounds, index, address)
        indptr = problem.targets.indptr
        weights = None if problem.weights is None else problem.weights[indptr[own.start] : indptr[own.stop]]
        where = (bounds, index, groups(problem.n), laplacian, targets, weights, problem.gamma)
        if resume_from is not None:
            return PairPart(*where, None, is_own, [resume_from.part(spans_of(problem, own.start, own.stop))], request)
        assert start is not None
        return PairPart(*where, np.ascontiguousarray(start[own]), is_own, [], request)

    return [partial(part, index) for index in range(len(bounds) - 1)]


def _watched(work: JointWork, watch: Watch, store: SearchStore | None) -> None:
    """Run the work to its end: record its rows, commit where due, and pass on the watch's stop."""

    def state() -> Source:
        notes, names = work.notes()
        return Source(notes, names, work.pieces)

    steps, is_done = 1, False
    while not is_done:
        began = time.monotonic()
        rows, is_done = work.advance(steps, watch.outcome is not None)
        for row in rows:
            row.pop("seconds", None)
            watch.record(row)
        if store is not None and rows and not is_done:
            store.commit_due(rows[-1], int(rows[-1]["iteration"]), state, watch)
        if watch.outcome is not None:
            steps = 1 << 40  # stopped: run to the end without reporting
        elif watch.is_passive and rows:
            # About SECONDS of iterations at a time: a round trip to the workers costs some milliseconds.
            steps = int(np.clip(len(rows) * SECONDS / max(time.monotonic() - began, 1e-3), 1, 64))
        if store is not None:
            # Not beyond the next commit, as a state is offered between requests alone.
            steps = min(steps, store.rule.steps_until_due())


def _put_together(problem: PairwiseKernel, work: JointWork, watch: Watch) -> FactoredSolution:
    """Assemble the solution of all rows, with this process' own reason to end."""
    first: Any = None
    factor, at = np.zeros(0), 0
    parts: dict[str, list[NDArray]] = {"lift": [], "pair_lift": [], "direction": []}
    for found in work.results():
        if first is None:
            first = found
            factor = np.empty((problem.n, found.factor.shape[1]), found.factor.dtype)
        # In the order of owners, which is the order of rows.
        factor[at : at + len(found.factor)] = found.factor
        at += len(found.factor)
        for name, several in parts.items():
            several.append(getattr(found.certificate, name))
    certificate: Certificate = replace(first.certificate, **{k: np.concatenate(v) for k, v in parts.items()})
    outcome = first.outcome
    # A worker only knows that it was stopped; why is known here.
    if outcome is Outcome.STOPPED and watch.outcome is not None:
        outcome = watch.outcome
    return FactoredSolution(factor, certificate, first.n_iter, outcome, watch.history)

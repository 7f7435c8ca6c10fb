"""Solves in the place of dense work, whose rows come to the watch of the process that waits: the same history in all places."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dkl.blocks.workers.followed import CANCELLED, Follower
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch

if TYPE_CHECKING:
    from dkl.blocks.session import Out
    from dkl.blocks.workers.dense_work import DenseWork


def solve_in_place(work: DenseWork, watch: Watch, function: Callable[..., Out], *arguments: object) -> Out:
    """Return function(work's data, *arguments, watch), solved where the work is; its rows are recorded by `watch` here.

    Callbacks, the time limit and interruptions end it as they would end it here, a row later where no callback may change its course.
    """
    if work.is_here:
        return work.call(function, *arguments, watch)

    def show(row: Row) -> str | None:
        watch.record(row)
        return None if watch.outcome is None else watch.outcome.value

    answer = None if watch.outcome is None else watch.outcome.value
    return work.follow(Follower(show, not watch.is_passive, answer), _solve_there, function, arguments)


def _solve_there(
    data: Any, report: Callable[[Row], str | None], function: Callable[..., Out], arguments: tuple[Any, ...]
) -> Out:
    """Call the function with a watch that reports its rows, wherever this runs."""
    return function(data, *arguments, ReportingWatch(report))


class ReportingWatch(Watch):
    """Watch of a solver on a worker: each row goes to `report`, whose answer is that of the watch that records it."""

    def __init__(self, report: Callable[[Row], str | None]) -> None:
        super().__init__()
        self._report = report

    def _show(self, row: Row) -> None:
        super()._show(row)
        if self._is_quiet:
            return
        answer = self._report({name: value for name, value in row.items() if name != "seconds"})
        if answer is not None:
            self._run.outcome = Outcome.STOPPED if answer == CANCELLED else Outcome(answer)

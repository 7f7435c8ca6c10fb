"""Rows that a function reports while it runs on a worker, shown here as they come.

The process that waits asks for them now and then, and answers. A function whose rows may each end it (`waits`) continues once its
row is answered: so it takes the steps that it would take here.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dkl.blocks.workers import waiting

if TYPE_CHECKING:
    from distributed import Future

    from dkl.blocks.session import Session

Answer = str | None
"""Reason why a function is to end, in its caller's words; None where it is to continue."""
ReportRow = Callable[[Any], Answer]
"""Function that a step's row is given to, and that answers."""

ASK_SECONDS, ASK_PASSIVE_SECONDS = 0.01, 0.2
"""Seconds between two questions for rows, where a function waits for answers and where it does not."""
LOOK_SECONDS = 1.0
"""Seconds after which a function that waits for an answer checks that the result is still waited for."""
CANCELLED = "cancelled"
"""Answer where the result is no longer waited for."""


@dataclass
class Follower:
    """Reader of a call's rows: `show` is called with each, once and in order, whatever the number of attempts.

    answer: to the last row, or to all where the call is to end as it begins; waits: whether each row may end it.
    """

    show: ReportRow
    waits: bool = False
    answer: Answer = None
    seen: int = 0
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def take(self, rows: list[Any]) -> None:
        """Show rows that follow those seen."""
        for row in rows:
            self.seen += 1
            self.answer = self.show(row)

    def until_done(self, session: Session, task: Future, worker: str) -> None:
        """Show rows as they come, until the task has ended or its worker is gone. Cancels it where this is interrupted."""
        seconds = ASK_SECONDS if self.waits else ASK_PASSIVE_SECONDS
        pause = seconds
        try:
            while not waiting.all_done(session.client, [task], pause) and worker in session.workers():
                given = self.token, self.seen, self.answer
                rows = session.client.run(rows_of, *given, workers=[worker], on_error="ignore").get(worker)
                self.take(rows or [])
                pause = 0.0 if rows and self.waits else seconds  # it is answered at once
        except BaseException:
            session.client.cancel([task])
            raise


class CallRows:
    """Rows of a call under way on a worker, and the last answer."""

    def __init__(self, waits: bool, seen: int, answer: Answer) -> None:
        """Begin a call; seen: rows of an attempt before, the last of which had this answer."""
        self.rows: list[Any] = []
        self._waits, self._answered, self._answer = waits, seen, answer
        self._changed = threading.Condition()

    def report(self, row: Any) -> Answer:
        """Keep a row; return the answer to it, or to one before."""
        with self._changed:
            self.rows.append(row)
            while self._waits and self._answer is None and self._answered < len(self.rows):
                if _is_cancelled():
                    return CANCELLED
                self._changed.wait(LOOK_SECONDS)
            if self._answered > len(self.rows):  # rows of an attempt before, which continued
                return None
            return CANCELLED if _is_cancelled() else self._answer

    def after(self, seen: int, answer: Answer) -> list[Any]:
        """Return the rows after the first `seen`, which are answered."""
        with self._changed:
            self._answered, self._answer = seen, answer
            self._changed.notify_all()
            return self.rows[seen:]


_CALLS: dict[str, CallRows] = {}
"""Calls under way in this process, by their tokens."""


def rows_of(token: str, seen: int, answer: Answer) -> list[Any]:
    """Return the rows of a call after the first `seen`, and answer these; [] where it is not under way here."""
    kept = _CALLS.get(token)
    return [] if kept is None else kept.after(seen, answer)


class KeptCall:
    """A call's rows, under their token while it is entered."""

    def __init__(self, token: str, *how: Any) -> None:
        self.token, self.kept = token, CallRows(*how)

    def __enter__(self) -> CallRows:
        _CALLS[self.token] = self.kept
        return self.kept

    def __exit__(self, *error: object) -> None:
        _CALLS.pop(self.token, None)


def _is_cancelled() -> bool:
    """Return whether the result of this thread's task is wanted no more; False outside of tasks."""
    from distributed import get_worker

    try:
        worker = get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
    except (ValueError, AttributeError):
        return False
    return task is None or task.state == "cancelled"

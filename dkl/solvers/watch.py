"""History, callbacks and stopping rules shared by all solvers.

A solver records a row at each check and does what the answer says: None is to continue, an Outcome is to return the best
so far. Once a run has ended every later `record` answers the same at once. So stages, machines and outputs that come later
return what they start from, and no solver has to know of the others.
"""

from __future__ import annotations

import copy
import math
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from dkl.errors import InterruptedRunError
from dkl.solvers.result import Outcome

# Rows of a history kept by columns: 8 bytes a number instead of a dict a row.

Row = dict[str, Any]
Signature = tuple[tuple[str, str], ...]
"""(name, type code) of each value of a row, in order."""
Columns = dict[str, "array[Any] | list[Any]"]


class HistoryRows:
    """Non-empty rows in order, read as new dicts with the names, values and types that were appended.

    A dict of fifteen numbers takes some 900 bytes, as each float is an object; here it takes 120. Rows of the same names and types
    share their columns, wherever they are.
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._tables: dict[Signature, tuple[int, Columns]] = {}
        self._table_of_row = array("I")
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        """Keep what the row holds now."""
        # By way of a list: a tuple that grows is freed in another size than it is taken in, and Python keeps 2,000 of these.
        signature = tuple([(name, _code(value)) for name, value in row.items()])
        if signature not in self._tables:
            # The strings of a row that came from a worker are its own: of equal ones the first is kept.
            signature = tuple([(sys.intern(name), code) for name, code in signature])
            self._tables[signature] = len(self._tables), {name: array(code) if code else [] for name, code in signature}
        number, columns = self._tables[signature]
        for column, value in zip(columns.values(), row.values(), strict=True):
            column.append(sys.intern(value) if type(value) is str else value)
        self._table_of_row.append(number)

    def __len__(self) -> int:
        return len(self._table_of_row)

    def __iter__(self) -> Iterator[Row]:
        tables = [_rows(columns) for _, columns in self._tables.values()]
        for number in self._table_of_row:
            yield next(tables[number])


def _rows(columns: Columns) -> Iterator[Row]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _code(value: object) -> str:
    """Return the type code of an array that preserves `value`: "d" or "q"; "" if it must stay an object."""
    if type(value) is float:
        return "d"
    return "q" if type(value) is int and -(1 << 63) <= value < 1 << 63 else ""


Callback = Callable[[Row], Any]
"""Called with a copy of each row of the history, in order; returning True, and nothing else, ends the run.

Three attributes may say more of one: `passive = True`, that several iterations may be under way while it looks at one;
`comes_back = True`, that a run ended by it is to be resumed, so that no result is wanted; `close()`, what is to be
done when the run is over.
"""


class Stall:
    """Limit on checks without progress: `check` is True after more than `most` of them in a row."""

    def __init__(self, most: int) -> None:
        self.most, self.idle = most, 0

    def check(self, progressed: bool) -> bool:
        """Count a check; return whether the limit is passed."""
        self.idle = 0 if progressed else self.idle + 1
        return self.is_passed

    @property
    def is_passed(self) -> bool:
        """Return whether the last check passed the limit."""
        return self.idle > self.most


def verdict(
    stop_reason: Outcome | None, *, solved: bool, at_limit: bool = False, stalled: bool = False
) -> Outcome | None:
    """Return a solver's outcome or None: SOLVED goes before the watch's, which goes before its own limits."""
    if solved:
        # A goal that is reached in the row that a callback stopped at counts as reached.
        return Outcome.SOLVED
    if stop_reason is not None:
        return stop_reason
    if at_limit:
        return Outcome.ITERATION_LIMIT
    return Outcome.STALLED if stalled else None


class _Run:
    """State shared by all stages of one run."""

    def __init__(self, time_limit: float | None, clock: Callable[[], float]) -> None:
        self.time_limit, self.clock, self.began = time_limit, clock, clock()
        self.earlier = 0.0
        self.outcome: Outcome | None = None
        self.is_interrupted = False
        self.lock = threading.RLock()


class Watch:
    """History, callbacks and limits of a run; `stage` makes the watch of a part of it.

    callbacks   see `Callback`; all are called with a row, whatever the first of them answers
    time_limit  seconds from now on, looked at with every row; it alone makes a result depend on the clock
    clock       seconds from any fixed moment

    As a context manager it closes the callbacks that have a `close`.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        *,
        time_limit: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._run = _Run(time_limit, clock)
        self._callbacks = tuple(callbacks)
        self._fields: Row = {}
        self._start: dict[str, int] = {}
        self._entries: list[HistoryRows | Watch] = []
        self._is_quiet = False

    def stage(
        self,
        name: str | None = None,
        *,
        of: int | None = None,
        start: Mapping[str, int] | None = None,
        callbacks: Sequence[Callback] = (),
        **fields: Any,
    ) -> Watch:
        """Return the watch of a part of the run, with the same end, clock and callbacks.

        Its rows come in the history where the stage was made, whenever they are recorded: stages that run side by side do not mix.
        name, of, fields: `stage`, `of` (how many iterations there will be, if known) and more of each row.
        start: what its rows count on from, as {"iteration": 40}. callbacks: more of them, for this stage.
        """
        part = copy.copy(self)
        given = {"stage": name, "of": of}
        part._fields = self._fields | {key: value for key, value in given.items() if value is not None} | fields
        # Counts of stages within stages add up.
        part._start = {
            key: self._start.get(key, 0) + (start or {}).get(key, 0) for key in self._start | dict(start or {})
        }
        part._callbacks = (*self._callbacks, *callbacks)
        part._entries = []
        if not self._is_quiet:
            self._entries.append(part)
        return part

    def quiet(self) -> Watch:
        """Return a watch for inner solves that are no stages: it ends with the run, but keeps no rows."""
        part = copy.copy(self)
        part._callbacks, part._entries, part._is_quiet = (), [], True
        return part

    def record(self, row: Row) -> Outcome | None:
        """Keep a row and show it to the callbacks; return the outcome that ends the run, or None.

        STOPPED once a callback returned True; TIME_LIMIT; NUMERICAL_ERROR (of this row alone) where its objective is not
        finite. A run that has ended takes no more rows. Adds the stage's fields, and `seconds` unless the row has them.
        """
        with self._run.lock:
            if self._run.outcome is not None:
                return self._run.outcome
            # Kept before it is shown: a callback may ask for the history.
            kept = self._keep(row)
            self._show(kept)
            return self.outcome if _is_finite(kept) else Outcome.NUMERICAL_ERROR

    def record_all(self, rows: Sequence[Row]) -> Outcome | None:
        """Record rows whose steps were done together, as `record` does a row.

        All are kept, up to the first that is not finite, and all are shown, unless the run had ended before.
        """
        with self._run.lock:
            is_running = self._run.outcome is None
            for row in rows:
                # All rows of a batch are kept, as their steps are done and committed together.
                kept = self._keep(row)
                if is_running:
                    self._show(kept)
                if not _is_finite(kept):
                    return Outcome.NUMERICAL_ERROR
            return self.outcome

    @property
    def outcome(self) -> Outcome | None:
        """Return STOPPED or TIME_LIMIT if that has ended the run, else None."""
        run = self._run
        # Looked at whenever it is asked for, as an inner solver may record no row for long.
        if run.outcome is None and run.time_limit is not None and self.seconds > run.time_limit:
            run.outcome = Outcome.TIME_LIMIT
        return run.outcome

    @property
    def seconds(self) -> float:
        """Return the seconds since the start of the run, including earlier sessions: the clock of all parts."""
        return self.earlier + self._run.clock() - self._run.began

    @property
    def earlier(self) -> float:
        """Return the seconds of earlier sessions of a resumed run, up to the last row that they have left."""
        return self._run.earlier

    @property
    def history(self) -> list[Row]:
        """Return all rows of this watch and its stages, in the order in which the stages were made."""
        rows: list[Row] = []
        for entry in self._entries:
            rows += entry.history if isinstance(entry, Watch) else entry
        return rows

    @property
    def n_rows(self) -> int:
        """Return the number of rows of the history, without building it."""
        return sum(entry.n_rows if isinstance(entry, Watch) else len(entry) for entry in self._entries)

    @property
    def is_passive(self) -> bool:
        """Return whether all callbacks allow several iterations to be under way at a time."""
        return all(getattr(callback, "passive", False) for callback in self._callbacks)

    @property
    def is_interrupted(self) -> bool:
        """Return whether the run was ended by a callback in order to be resumed."""
        return self._run.is_interrupted

    def raise_if_interrupted(self, what: str) -> None:
        """Raise InterruptedRunError where the run is to be resumed; what was done must be committed by now."""
        if self.is_interrupted:
            raise InterruptedRunError(what, remedy="resume the run")

    def resume(self, rows: Sequence[Row]) -> None:
        """Begin this stage with the rows of an earlier session, whose seconds come before those of this one."""
        self._entries = [HistoryRows({**self._fields, **row} for row in rows)]
        self._run.earlier = max(self._run.earlier, max((row["seconds"] for row in rows), default=0.0))

    def roll_back(self, iteration: int) -> None:
        """Forget the rows of this stage beyond an iteration: they are to be computed again."""
        self._entries = [
            entry if isinstance(entry, Watch) else HistoryRows(row for row in entry if row["iteration"] <= iteration)
            for entry in self._entries
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for callback in self._callbacks:
            close = getattr(callback, "close", None)
            if close is not None:
                close()

    def _keep(self, row: Row) -> Row:
        kept = {**self._fields, **row}
        kept.setdefault("seconds", self.seconds)
        for name, start in self._start.items():
            if name in kept:
                kept[name] += start
        if not self._is_quiet:
            last = self._entries[-1] if self._entries else None
            if not isinstance(last, HistoryRows):
                last = HistoryRows()
                self._entries.append(last)
            last.append(kept)
        return kept

    def _show(self, row: Row) -> None:
        """Call all callbacks, each with a new copy; note what they answer."""
        for callback in self._callbacks:
            if callback(dict(row)) is True:
                # The first reason counts; a later callback does not change it.
                self._run.outcome = self._run.outcome or Outcome.STOPPED
                self._run.is_interrupted |= bool(getattr(callback, "comes_back", False))


def _is_finite(row: Row) -> bool:
    """Return whether a row is finite, by its own `finite` and its objective."""
    return bool(row.get("finite", True)) and math.isfinite(row.get("objective", 0.0))

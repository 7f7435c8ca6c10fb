"""History, callbacks, stopping rules and results shared by all solvers: one closed list of outcomes, one result type for every learner.

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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from dkl.errors import InterruptedRunError
from dkl.quality import Quality


class Outcome(StrEnum):
    """Reason why a solver returned, a string such as "solved"; for each learner's remedies see `remedies`.

    SOLVED: what is handed out is proven as good as was asked for. STATIONARY: the iteration has come to rest, by its own
    test of convergence, and no more than the gap that is reported with it is proven.
    """

    SOLVED = "solved"
    ITERATION_LIMIT = "iteration_limit"
    STALLED = "stalled"
    STATIONARY = "stationary"
    NUMERICAL_ERROR = "numerical_error"
    STOPPED = "stopped_by_callback"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"

    @property
    def converged(self) -> bool:
        """Return whether the result is as good as was asked for."""
        return self is Outcome.SOLVED

    @property
    def is_wanted(self) -> bool:
        """Return whether no warning is due: solved, or stopped by a callback."""
        return self in (Outcome.SOLVED, Outcome.STOPPED)


Remedies = Mapping[Outcome, str]
"""Advice on each outcome of a learner, in the names of the learner's parameters."""

_COMMON = {
    Outcome.SOLVED: "",
    Outcome.STOPPED: "a callback asked for the end",
    Outcome.TIME_LIMIT: "the time was up before the tolerance was reached: allow more time",
    Outcome.STATIONARY: "the iteration came to rest, but no small gap is proven",
    Outcome.INTERRUPTED: "resume the run from its last commit",
}


def remedies(*, iteration_limit: str, stalled: str, numerical_error: str, **others: str) -> Remedies:
    """Return a learner's remedies from those that differ by learner; `others` by lower-case outcome names."""
    own = {"iteration_limit": iteration_limit, "stalled": stalled, "numerical_error": numerical_error, **others}
    return _COMMON | {Outcome[name.upper()]: text for name, text in own.items()}


def judged(outcome: Outcome, proven: float, asked: float) -> Outcome:
    """Return the outcome; in the place of SOLVED NUMERICAL_ERROR unless `proven` is finite, STALLED where it is more than `asked`.

    >>> judged(Outcome.SOLVED, 1e-7, 1e-6).value, judged(Outcome.SOLVED, 1e-5, 1e-6).value, judged(Outcome.SOLVED, math.inf, 1e-6).value
    ('solved', 'stalled', 'numerical_error')
    """
    if outcome is not Outcome.SOLVED or proven <= asked < math.inf:
        return outcome
    return Outcome.STALLED if math.isfinite(proven) else Outcome.NUMERICAL_ERROR


@dataclass(frozen=True)
class Result:
    """Outcome and statistics of a fit, of the same type for all learners.

    Where `proven` is not finite, or more than `asked`, an outcome SOLVED is replaced by what `judged` returns, and the remedy says why.

    history     a dictionary for each check: stage, iteration, objective, gap or residuals, seconds since the start
    seconds     wall time by stage of this session and "total", of earlier sessions too: at least the history's last seconds
    peak_bytes  largest resident memory of this process so far
    restarts    how often lost workers sent the run back to its last commit
    remedy      what to do about the outcome, in the names of the learner's parameters
    proven      how near to the optimum what is handed out is, recomputed from it: the largest relative gap, or what `measure` names
    asked       what `proven` may be at most for the outcome to be SOLVED
    measure     name of `proven`: "relative gap", or, of a learner without one, its residual
    wrong_pairs pairs that look wrong (`WrongPairs`), of a learner that looked for them; else None
    quality     a number on held-out data, next to that of the plainest alternative; None where nothing was held out
    no_quality  why `quality` is None, where one was asked for and the fit was not stopped
    placement   where dense work was done: "worker tcp://10.0.0.7:4000 (2.0 GB)", with what it may use, or "this process"
    """

    outcome: Outcome
    n_iter: int
    history: list[Row] = field(repr=False)
    seconds: dict[str, float]
    peak_bytes: int
    restarts: int = 0
    plan: dict[str, Any] = field(default_factory=dict, repr=False)
    remedy: str = ""
    proven: float = math.nan
    wrong_pairs: Any = field(default=None, repr=False)
    quality: Quality | None = None
    no_quality: str = ""
    asked: float = math.nan
    measure: str = "relative gap"
    placement: str = "this process"

    def __post_init__(self) -> None:
        """Replace an outcome SOLVED that does not hold."""
        outcome = judged(self.outcome, self.proven, self.asked)
        if outcome is self.outcome:
            return
        why = f"the {self.measure} of what is handed out is {self.proven:.2g}"
        remedy = (
            f"{why}, {self.asked:.2g} was asked for: loosen tol, or use dtype='float64' if it is not"
            if outcome is Outcome.STALLED
            else f"{why}: bring the numbers nearer to 1, of rows, kernel, targets and weights alike"
        )
        object.__setattr__(self, "outcome", outcome)
        object.__setattr__(self, "remedy", remedy)

    def placed(self, placement: str) -> Result:
        """Return the result with the place of its dense work."""
        return replace(self, placement=placement)

    def with_quality(self, quality: Quality | None, seconds: float, no_quality: str, total: float) -> Result:
        """Return the result with a quality that took `seconds` of `total`; no_quality: why `quality` is None."""
        times = self.seconds | {"quality": seconds, "total": total}
        return replace(self, quality=quality, no_quality="" if quality else no_quality, seconds=times)

    @property
    def ended(self) -> str:
        """Return the outcome, with what is proven if that is too little: "stationary (relative gap 0.049)"."""
        if math.isnan(self.proven) or self.outcome.is_wanted:
            return self.outcome.value
        return f"{self.outcome.value} ({self.measure} {self.proven:.2g})"

    @property
    def message(self) -> str:
        """Return the outcome and its remedy."""
        return f"{self.ended}: {self.remedy}" if self.remedy else self.ended


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

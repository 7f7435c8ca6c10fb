"""Progress of a long fit, for all learners: on standard error if `verbose`, and in the log "dkl".

Live where rich is installed and standard error is a terminal, else a line now and then. The log has the same lines at level
INFO, if somebody listens; logging itself is never configured here.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from dkl.blocks.workers.dense_work import CANCELLED, Follower
from dkl.errors import DataWarning, InputError, printable
from dkl.quality import Quality
from dkl.solvers.watch import Callback, Outcome, Result, Row, Watch

if TYPE_CHECKING:
    from dkl.blocks.session import Out
    from dkl.blocks.workers.dense_work import DenseWork
    from dkl.estimators.base.validation import UserCallbacks

LOG = logging.getLogger("dkl")
SECONDS_BETWEEN_LINES = 5.0
FIGURES = {
    "nu": "nu",
    "gamma": "gamma",
    "fold": "fold",
    "error": "error",
    "objective": "objective",
    "relative_gap": "gap",
    "primal_residual": "primal",
    "dual_residual": "dual",
    "residual": "residual",
    "rank": "rank",
    "rows": "rows",
    "n_active": "active",
    "moving": "starts still moving",
    "shift": "largest squared shift",
}
"""Fields of a row that are shown, with the name to show."""


def listed_callbacks(callbacks: Any) -> list[Callback]:
    """Return None, a function, or a list of them, as a list; InputError for anything else."""
    given = [] if callbacks is None else callbacks
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    for callback in found:
        if not callable(callback):
            wanted = "a function of an iteration's row, or a list of them"
            raise InputError("not a function", where="callbacks", got=repr(callback), wanted=wanted)
    return found


def watch_for(callbacks: UserCallbacks, verbose: int, *own: Callback) -> Watch:
    """Return the watch of a fit, with the user's `callbacks` and progress if it is wanted, after our `own`.

    callbacks: None, a function or a list. InputError for callbacks that cannot be called.
    """
    return Watch([*own, *listed_callbacks(callbacks), *progress(bool(verbose))])


def progress(is_shown: bool) -> list[Callback]:
    """Return [the callback that shows progress on standard error, or only logs it]; [] if neither is due."""
    return [Progress(is_shown=is_shown)] if is_shown or LOG.isEnabledFor(logging.INFO) else []


class Progress:
    """Callback that shows a fit's progress: stage, iteration, figures of the row, time elapsed and left.

    The time left is shown only where it can be known. Shown are the first row and the last, those that complete
    a stage, and others every few seconds.
    """

    passive = True

    def __init__(self, *, is_shown: bool = True) -> None:
        self.is_shown = is_shown
        self._bar = _Bar() if is_shown and sys.stderr.isatty() and find_spec("rich") is not None else None
        self._told_at = -SECONDS_BETWEEN_LINES
        self._first: Row = {}
        self._last: Row | None = None
        self._has_compiled, self._compiles = False, ExitStack()
        from dkl.linalg.late_functions import compiles

        compiling = WeakMethod(self._compiling)  # of a fit that fails before it has closed this
        self._compiles.enter_context(compiles(lambda name: (show := compiling()) and show()))

    def __call__(self, row: Row) -> None:
        """Take note of a row, and show it if it is time."""
        before, is_new = self._last, row.get("stage") != self._first.get("stage")
        if is_new:
            # One of many stages alike ("share") is not worth a separate line.
            if before is not None and "share" not in before:
                self._tell(before, None)
            self._first = row
        self._last = row
        if self._bar is not None:
            self._bar.show(row, describe(row), self._left(row))
        now = time.monotonic()
        if row["iteration"] >= row.get("of", float("inf")) or now - self._told_at >= SECONDS_BETWEEN_LINES:
            self._told_at = now
            self._tell(row, self._left(row))

    def close(self) -> None:
        """Show where it ended."""
        self._compiles.close()
        if self._last is not None:
            self._tell(self._last, None)
        if self._bar is not None:
            self._bar.close()

    def _tell(self, row: Row, left: float | None) -> None:
        """Print a line for a row; left: seconds, or None if unknown or over."""
        if row is self._last:
            self._last = None
        self._print(describe(row) + (f"  about {duration(left)} left" if left is not None else ""))

    def _compiling(self) -> None:
        """Print a line at the first compilation of the fit."""
        if not self._has_compiled:
            self._has_compiled = True
            self._print(
                "compiling what this machine has not compiled yet, for some seconds; `dkl warmup` does it beforehand"
            )

    def _print(self, text: str) -> None:
        text = printable(text, lines=True)
        LOG.info("%s", text)
        if self._bar is not None:
            self._bar.print(text)
        elif self.is_shown:
            print(text, file=sys.stderr, flush=True)

    def _left(self, row: Row) -> float | None:
        """Return the seconds left of the fit, if its share done is known, or of a stage of known length."""
        if row.get("share"):
            return float(row["seconds"] * (1 - row["share"]) / row["share"])
        done, took = row["iteration"] - self._first["iteration"], row["seconds"] - self._first["seconds"]
        if "of" not in row or done <= 0 or row["iteration"] >= row["of"]:
            return None
        return float((row["of"] - row["iteration"]) * took / done)


def describe(row: Row) -> str:
    """Describe a row in words: stage and iteration, figures, time elapsed."""
    place = f"{row.get('stage', 'iteration')} {row['iteration']}"
    if "of" in row:
        place += f"/{row['of']}"
    figures = [f"{name} {row[key]:.5g}" for key, name in FIGURES.items() if row.get(key) is not None]
    return "  ".join([place, *figures, duration(row.get("seconds", 0.0))])


def duration(seconds: float) -> str:
    """Format seconds in words: "3.2 s", "4 min 10 s", "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class _Bar:
    """A line at the foot of the terminal that follows the rows, by rich; lines are printed above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[left]}"))
        self._bars = Bars(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4)
        self._task: Any = None

    def show(self, row: Row, text: str, left: float | None) -> None:
        """Update the bar to a row."""
        if self._task is None:
            self._bars.start()
            self._bars.console.show_cursor(True)  # a process that is ended at once must not leave it hidden
            self._task = self._bars.add_task("", left="")
        self._bars.update(
            self._task,
            description=text,
            completed=row["iteration"],
            total=row.get("of"),
            left="" if left is None else f"about {duration(left)} left",
        )

    def print(self, text: str) -> None:
        """Print a line that stays."""
        self._bars.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Restore the terminal."""
        self._bars.stop()


# Warnings at the end of a fit, the same for all learners.


def warn_of(result: Result, *, stacklevel: int, more: str = "") -> None:
    """Warn that a fit did not converge, with the remedy, unless a callback asked for the end.

    stacklevel: as in `warnings.warn`, from the caller of this function; more: figures to add.
    """
    from dkl.errors import ConvergenceWarning  # scikit-learn's, which takes a second to import

    if not result.outcome.is_wanted:
        text = f"not converged ({result.outcome.value}): {result.remedy}" + (f" ({more})" if more else "")
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)


def warn_if_worse(quality: Quality | None, *, stacklevel: int) -> None:
    """Warn where the plainest alternative is better on held-out data. stacklevel: as in `warn_of`."""
    if quality is not None and quality.is_worse:
        warnings.warn(quality.warning, DataWarning, stacklevel=stacklevel + 1)


# -- solves elsewhere --------------------------------------------------------------------------------------------------
# Solves in the place of dense work, whose rows come to the watch of the process that waits: the same history in all places.


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

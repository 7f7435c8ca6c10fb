"""Standard output and error of a command, and its answer to Ctrl-C and SIGTERM.

A signal commits the iteration under way, and the command ends within ten seconds.

Nothing is raised while this thread compiles or loads a Numba function: an exception in the midst of LLVM's callbacks is printed
and lost, or leaves a function half made, which then fails for a reason that looks like a bug. What is raised while a compiled function
runs comes out of it as a SystemError, which is taken back.
"""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from dkl.errors import printable

if TYPE_CHECKING:
    from dkl.stores.seals import Json


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text of one or more lines without the control characters of names; err: on standard error."""
    click.echo(printable(str(text), lines=True), err=err, nl=nl)


OF_STORES = {"aiobotocore", "aiohttp", "botocore", "gcsfs", "s3fs"}
"""Packages that access object stores."""


def is_ours_to_tell(record: logging.LogRecord) -> bool:
    """Return False for asyncio's log, with a traceback, of a store's request that is no longer waited for.

    Several are under way at once; the error of the first is the one that `dkl` reports, in a line.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        if type(error).__module__.partition(".")[0] in OF_STORES:
            return False
        error = error.__cause__ or error.__context__
    return not record.getMessage().startswith("Unclosed c")  # lient session, onnector


@contextmanager
def notes() -> Iterator[None]:
    """Print warnings as lines, each once, but for ConvergenceWarning, which the exit code reports."""
    shown = set[str]()
    logging.getLogger("asyncio").addFilter(is_ours_to_tell)

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        text = " ".join(str(message).split())
        # By its name: scikit-learn, whose class it is, may not be imported yet.
        if category.__name__ != "ConvergenceWarning" and text not in shown:
            shown.add(text)
            echo(f"note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield


INTERRUPTED = 4
NOTICE_SECONDS = 4.0
"""Seconds for the iteration under way to end; then the command ends without it."""
LAST_SECONDS = 9.0
"""Seconds until the process ends wherever it is; a commit is on disk whole or not at all."""
COMPILED_SECONDS = 0.05
"""Seconds between checks whether a function is compiled by now."""


def is_compiling() -> bool:
    """Return whether this thread holds Numba's compiler lock (compiles or loads a cached function)."""
    module = sys.modules.get("numba.core.compiler_lock")
    return module is not None and module.global_compiler_lock.is_locked()


def require_no_interrupt(error: BaseException | None) -> None:
    """Raise the KeyboardInterrupt of a compiled function, which Python makes the cause of a SystemError."""
    if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
        raise error.__cause__


class CommandSignals:
    """Handler of Ctrl-C and SIGTERM in a command: raises KeyboardInterrupt, at once or when a compilation has ended.

    Then, or once its exit code is known, the command ends by itself; further signals only limit that to LAST_SECONDS.
    """

    def __init__(self) -> None:
        self.code: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Answer a signal, or the alarm that an earlier one has set."""
        if self.code is None:
            if is_compiling():
                signal.setitimer(signal.ITIMER_REAL, COMPILED_SECONDS)
                return
            self.code = INTERRUPTED
            raise KeyboardInterrupt
        # The command has had LAST_SECONDS after its code was known: something waits for a thread or a library that does not end.
        if number == signal.SIGALRM:
            os._exit(self.code)
        signal.setitimer(signal.ITIMER_REAL, LAST_SECONDS)

    def take(self) -> dict[int, Any]:
        """Handle those of the signals that Python or the system does; return the handlers before, by number."""
        before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
            mine = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
            before = {number: signal.signal(number, self) for number in (*mine, *([signal.SIGALRM] if mine else []))}
        return before


def answer_signals() -> None:
    """Handle signals for the whole process by CommandSignals: it then ends with its own exit code."""
    for number in CommandSignals().take():
        atexit.register(signal.signal, number, signal.SIG_IGN)  # Python puts the system's handlers back before it ends


def end_with(code: int, handlers: Iterable[Any] = ()) -> None:
    """Note the exit code of a command in its handler of signals, one of `handlers` or the present one."""
    for handler in handlers or map(signal.getsignal, (signal.SIGINT, signal.SIGTERM)):
        if isinstance(handler, CommandSignals):
            handler.code = code


@contextmanager
def between_compiles() -> Iterator[None]:
    """Answer signals as CommandSignals does, also in a compiled function, unless the process does already."""
    before = CommandSignals().take()
    try:
        yield
    except SystemError as error:
        require_no_interrupt(error)
        raise
    finally:
        if before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupt:
    """Callback of the loop that stops it on Ctrl-C or SIGTERM, and the signals' handler while entered.

    In the loop the first signal is answered after the iteration, which is committed; elsewhere (graph, start, result)
    at once, or when the function that is being compiled is. A second signal ends the process at once.
    """

    passive = True  # it may stop the run at any iteration, so several may be under way
    comes_back = True

    def __init__(self, again: str, max_iter: int) -> None:
        self.again, self.max_iter = again, max_iter
        self.signal = ""
        self.looping = self.noticed = False
        self.watchdog: threading.Timer | None = None
        self.before: dict[int, Any] = {}

    def __call__(self, row: Json) -> bool:
        """Return whether to stop after this iteration of ADMM or the factored solver, since a signal came.
        Rows of other stages stop nothing."""
        if self.signal and not self.looping:  # it came while something was compiled
            raise KeyboardInterrupt(self.line("what was committed is kept"))
        self.looping = self._is_within(row)
        self.noticed = self.noticed or bool(self.signal)
        return bool(self.signal)

    def _is_within(self, row: Json) -> bool:
        """Return whether another iteration is to follow at once, as far as the row can show."""
        stage = row.get("stage", "admm")
        if stage == "admm":
            return not (row.get("converged") or row["iteration"] >= self.max_iter)
        # The row of a certificate has its gap: what comes next may be the result.
        return stage in ("factored", "finish") and row.get("relative_gap") is None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers = {signal.SIGINT: self._asked, signal.SIGTERM: self._asked, signal.SIGALRM: self._late}
            self.before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.watchdog is not None:
            self.watchdog.cancel()
        if self.before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self.signal:
            end_with(INTERRUPTED, self.before.values())
        for number, handler in self.before.items():
            signal.signal(number, handler)
        require_no_interrupt(error)

    def line(self, what: str) -> str:
        """Return the message of an interruption, with the command that resumes."""
        return f"interrupted by {self.signal}; {what}; resume it with: {self.again}"

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            self._end()
        self.signal = signal.Signals(number).name
        self.watchdog = threading.Timer(LAST_SECONDS, self._end)
        # A daemon, or Python would wait for it at the end.
        self.watchdog.daemon = True
        self.watchdog.start()
        if self.looping:
            signal.setitimer(signal.ITIMER_REAL, NOTICE_SECONDS)
        else:
            self._leave("what was committed is kept")

    def _late(self, number: int, frame: FrameType | None) -> None:
        if not self.noticed:
            self._leave(
                "the iteration was long, the last commit is kept" if self.looping else "what was committed is kept"
            )

    def _leave(self, what: str) -> None:
        if is_compiling():
            signal.setitimer(signal.ITIMER_REAL, COMPILED_SECONDS)
        else:
            raise KeyboardInterrupt(self.line(what))

    def _end(self) -> None:
        # Not through Python's own end: threads that compute would be waited for.
        os.write(
            sys.__stderr__.fileno() if sys.__stderr__ else 2, f"dkl: {self.line('the last commit is kept')}\n".encode()
        )
        os._exit(INTERRUPTED)


class PassInterrupt(Interrupt):
    """Interrupt of fits in stages: stops a pass over rows, whose sums can be committed, and later stages."""

    def __init__(self, again: str) -> None:
        super().__init__(again, 0)

    def __call__(self, row: Json) -> bool:
        """Return whether to end the pass after this wave, whose sums are then committed.
        Raises KeyboardInterrupt in other stages."""
        if self.signal and not self.looping:
            raise KeyboardInterrupt(self.line("what was committed is kept"))
        self.looping = row["stage"] == "pass" and row["iteration"] < row["of"]
        self.noticed = bool(self.signal)
        return bool(self.signal)


def resume_command(run: object, changes: Json | None = None) -> str:
    """Return the shell command that resumes a run, with changed settings."""
    words = ["dkl", "resume", str(run)]
    for name, value in (changes or {}).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)

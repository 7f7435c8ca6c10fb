"""The `dkl` command: its exit codes, and its errors in one line each.

0 solved, 1 a bug, 2 bad input, 3 not converged, 4 interrupted, 5 too little memory, disk or workers, 6 damaged store; 7, of
`dkl sweep compare` alone, that something got slower, larger or ends worse.

Nothing large is imported here: a wrong option is reported at once.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import click

from dkl.cli.commands import COMMANDS
from dkl.errors import printable
from dkl.runs.interrupt import answer_signals, between_compiles, echo, end_with, notes

BUG, BAD_INPUT, NOT_CONVERGED, INTERRUPTED, RESOURCES = 1, 2, 3, 4, 5
SCARCE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR),
}
"""Errors of the system that mean too little of a resource or no permission: exit code RESOURCES."""

MISNAMED = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
"""Errors of the system for a path that cannot exist: exit code BAD_INPUT, unless reported earlier."""

HELP_WANTED = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""Exception of newer click for a call without arguments; click 8.1 prints the help itself."""


class OneLineErrors(click.Group):
    """A group whose commands end with one line on standard error and an exit code, also inside `dask`."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Parse what was typed; an error ends in a line and an exit code."""
        with in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an error ends in a line and an exit code, and a warning is a line."""
        with in_one_line(), notes(), between_compiles():
            returned = super().invoke(ctx)
            end_with(0)
            return returned


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turn every error into a line and an exit."""
    try:
        yield
    except click.exceptions.Exit as ended:
        end_with(ended.exit_code)
        raise
    except (BrokenPipeError, SystemExit):
        raise  # click ends quietly where the reader has gone, as in `dkl guide scale | head`
    except HELP_WANTED as error:
        echo(error.format_message())
        raise click.exceptions.Exit(0) from None
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "dkl"
        _fail(f"{path}: {error.format_message()} See `{path} --help`.", BAD_INPUT)
    except click.ClickException as error:
        _fail(f"dkl: {error.format_message()}", BAD_INPUT)
    except (KeyboardInterrupt, click.Abort) as stop:
        _fail(f"dkl: {str(stop) or 'interrupted; nothing was started'}", INTERRUPTED)
    except Exception as error:
        status = exit_status(error)
        _fail(f"dkl: {error}" if status != BUG else f"dkl: {_bug(error)}", status)


def exit_status(error: BaseException) -> int:
    """Return the exit code for an error of dkl or of a library below it."""
    if type(error).__module__ == "dkl.errors":
        return int(getattr(error, "exit_status", BUG))
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in SCARCE):
        return RESOURCES
    if isinstance(error, OSError) and error.errno in MISNAMED:
        return BAD_INPUT
    if isinstance(error, FloatingPointError):
        return NOT_CONVERGED
    # Lost workers and schedulers come in many types, which a caller could not distinguish.
    if type(error).__module__.split(".")[0] == "distributed" or type(error).__name__ == "CancelledError":
        return RESOURCES
    return BUG


def _fail(text: str, status: int) -> None:
    end_with(status)
    wipe = "\r\x1b[K" if sys.stderr.isatty() else ""  # the line may show progress
    click.echo(wipe + printable(" ".join(text.split())), err=True)
    raise click.exceptions.Exit(status)


def _bug(error: Exception) -> str:
    """Write the traceback to a file for a bug report; return the message that names the file."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="dkl-bug-", suffix=".txt", delete=False) as file:
        file.write(f"dkl {version('dkl')}, Python {sys.version}\n")
        traceback.print_exception(error, file=file)
    return f"a bug in dkl, please report it: {type(error).__name__}: {error}; the traceback is in {file.name}"


@click.group(
    cls=OneLineErrors,
    commands=COMMANDS,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="dkl", prog_name="dkl", message="%(prog)s %(version)s")
def dkl() -> None:
    """Learn kernels: from pairs (must-link and cannot-link), for regression and for classification.

    Exit codes: 0 solved, 2 bad input, 3 not converged (the result is written), 4 interrupted (resume it),
    5 too little memory, disk or workers, 6 damaged store, 7 worse than before (`dkl sweep compare`), 1 a bug.
    """


def main() -> None:
    """Run the command: the entry point."""
    answer_signals()
    dkl(prog_name="dkl")


if __name__ == "__main__":
    main()

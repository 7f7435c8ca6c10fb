"""Standard output and standard error of commands, and warnings as a person reads them there."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

from dkl.errors import printable


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

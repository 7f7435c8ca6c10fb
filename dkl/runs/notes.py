"""Warnings, as a person at the command line reads them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


@contextmanager
def notes() -> Iterator[None]:
    """Warnings as lines, each once; that of no convergence is left to the exit code and its line."""
    shown = set[str]()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        # By its name: scikit-learn, whose class it is, may not be imported yet.
        if category.__name__ != "ConvergenceWarning" and text not in shown:
            shown.add(text)
            click.echo(f"note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield

"""Numba's compilations of functions of `dkl`: they take seconds at the first use on a machine, and are kept in Numba's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from numba.core import event

from dkl.linalg.lasso import subtract_rows
from dkl.linalg.late_functions import LateFunction

if TYPE_CHECKING:
    from numba.core.event import Event

_KIND = "numba:compile"  # not triggered where the compiled function is loaded from the cache


class _Listener(event.Listener):
    def __init__(self, started: Callable[[str], None]) -> None:
        self.started = started

    def on_start(self, event: Event) -> None:
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("dkl."):
            self.started(f"{function.__module__}.{function.__name__}")

    def on_end(self, event: Event) -> None:
        pass


@contextmanager
def compiles(started: Callable[[str], None]) -> Iterator[None]:
    """Call `started` with the name of each function of `dkl` whose compilation starts meanwhile, on any thread."""
    listener = _Listener(started)
    event.register(_KIND, listener)
    try:
        yield
    finally:
        event.unregister(_KIND, listener)


def cache_folder() -> Path:
    """Return the folder in which Numba keeps compiled functions of `dkl.linalg`; RuntimeError if it can write to none."""
    return Path(cast(LateFunction, subtract_rows).resolve().stats.cache_path)

"""Progress of a long fit on standard error: a bar where rich is installed and somebody looks, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from dkl.estimators.common.parameters import listed_callbacks

SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """A callback that shows the iteration, objective and residuals."""

    passive = True

    def __init__(self, max_iter: int) -> None:
        self.max_iter = max_iter
        self.last = 0.0
        self.live = sys.stderr.isatty()

    def __call__(self, row: dict[str, Any]) -> None:
        now = time.monotonic()
        done = bool(row.get("converged")) or row["iteration"] >= self.max_iter
        if not done and now - self.last < (0.1 if self.live else SECONDS_BETWEEN_LINES):
            return
        self.last = now
        parts = [f"iteration {row['iteration']}/{self.max_iter}"]
        for name, label in (("objective", "objective"), ("primal_residual", "primal"), ("dual_residual", "dual")):
            if name in row:
                parts.append(f"{label} {row[name]:.5g}")
        parts.append(f"{row.get('seconds', 0.0):.1f} s")
        text = "  ".join(parts)
        if self.live:
            print(f"\r\x1b[K{text}", end="\n" if done else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)


def stage_callbacks(callbacks: Any, verbose: int) -> list[Callable[[dict[str, Any]], Any]]:
    """The user's `callbacks` as a list, and with `verbose` one that shows how far a fit of several stages is."""
    given = listed_callbacks(callbacks)
    return [*given, StageProgress()] if verbose else given


class StageProgress:
    """A callback that shows how far a fit of several stages is: rows with stage, iteration and of."""

    passive = True

    def __init__(self) -> None:
        self.last = 0.0
        self.live = sys.stderr.isatty()

    def __call__(self, row: dict[str, Any]) -> None:
        now = time.monotonic()
        done = row["iteration"] >= row.get("of", 0)
        if not done and now - self.last < (0.1 if self.live else SECONDS_BETWEEN_LINES):
            return
        self.last = now
        parts = [f"{row['stage']} {row['iteration']}/{row.get('of', '?')}"]
        parts += [f"{name} {row[name]:.5g}" for name in ("nu", "error", "objective", "relative_gap") if name in row]
        if "seconds" in row:
            parts.append(f"{row['seconds']:.1f} s")
        text = "  ".join(parts)
        if self.live:
            print(f"\r\x1b[K{text}", end="\n" if done else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

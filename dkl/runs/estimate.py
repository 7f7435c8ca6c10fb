"""Measurements and checks for plans: seconds on random rows, disk space, a worker's peak memory."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from dkl.blocks.memory_plan import Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DiskError, MemoryBudgetError
from dkl.resources import format_bytes, one_blas_thread, parse_bytes, peak_rss

if TYPE_CHECKING:  # it takes scikit-learn
    from dkl.linalg.kernels.kernel_columns import Kernel
    from dkl.linalg.rows import Rows
    from dkl.runs.registry import RunKind

MOST_COLUMNS, MOST_ROWS = 1000, 2048
"""Size of the block on which seconds are measured."""
SQUARE = 400
"""Rows of the matrices whose product is timed."""
NAMED = re.compile(r"(?:at least )?([\d.]+ [kMGT]?B)")
"""Form in which a refusal names the least limit."""
MOST_LIMITS = 20
"""Limits that are tried until a plan is accepted: mostly two."""
STEP = 1.006
"""Factor of a limit that a plan refuses and yet names as the least, as its digits are rounded."""


def timed(function: Callable[[], object]) -> float:
    """Return the seconds of a call, after one that compiles and touches the memory."""
    function()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def flops_a_second() -> float:
    """Return the measured floating-point operations per second of a matrix product in this process."""
    A = np.ones((SQUARE, SQUARE))
    return 2.0 * SQUARE**3 / max(timed(lambda: A @ A), 1e-9)


def own_rows(rows: RowSource) -> int:
    """Return the bytes of rows read at once, with those of their file if it was read as other numbers."""
    return rows.n * rows.row_bytes + (0 if rows.is_in_place else rows.own_bytes)


def random_rows(rows: RowSource, count: int) -> Rows:
    """Return random rows (count, d), as dense as the real ones, none negative: some kernels refuse that."""
    rng = np.random.default_rng(0)
    if rows.is_sparse:
        entries = round(count * rows.array.nnz / rows.n)
        places = rng.integers(count, size=entries), rng.integers(rows.n_features, size=entries)
        return sparse.csr_array((rng.random(entries), places), shape=(count, rows.n_features))
    return rng.random((count, rows.n_features)).astype(rows.dtype)


def seconds_of_columns(kernel: Kernel, rows: RowSource, height: int, count: int, dtype: str) -> float:
    """Return one thread's measured seconds for `count` kernel columns on `height` random rows."""
    # Random rows: a plan reads no values, and the time of a kernel column does not depend on them.
    block = random_rows(rows, height)
    points = np.arange(count) if kernel.is_precomputed else block[np.arange(count) % height]
    # One thread, to be divided by those of the plan: what BLAS has here is not what a worker has.
    with one_blas_thread():
        return timed(lambda: kernel.columns(block, points, dtype))


def time_of_matrices(kernels: Sequence[Kernel], rows: RowSource, dtype: str, plan: Plan) -> list[str]:
    """Return a plan's lines on the seconds of kernel matrices (n, n), scaled from a block's columns."""
    n = rows.n
    count, height = min(n, MOST_COLUMNS), min(n, MOST_ROWS)
    seconds = sum(seconds_of_columns(kernel, rows, height, count, dtype) for kernel in kernels)
    # In memory a symmetric matrix is stored, and computed, by halves.
    pairs = n * (n + 1) / 2 if plan.placement == "memory" else float(n) * n
    seconds *= pairs / (count * height) / (plan.processes * plan.threads)
    lines = [f"about {seconds:.2g} s to make the whole kernel matrix once: measured here on one block and scaled"]
    if plan.placement == "recomputed":
        lines.append("of which solvers take the columns that they need, as often as they do")
    return lines


def check_disk(needed: int, folder: Path, remedy: str) -> None:
    """Raise DiskError if a run takes more bytes than are free there."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DiskError(
            "the run does not fit on that disk",
            where=str(folder),
            got=f"{format_bytes(free)} free",
            wanted=format_bytes(needed),
            remedy=remedy,
        )


def describe_disk(needed: int, folder: Path) -> str:
    """Return a plan's line on the disk."""
    free = shutil.disk_usage(folder).free
    return f"  {'disk, at most':<34}{format_bytes(needed):>10}   free {format_bytes(free)}"


def describe_picture(needed: int) -> str:
    """Return a plan's line on the picture."""
    return f"  {'picture, after the fit':<34}{format_bytes(needed):>10}   left out where it does not fit next to the process"


def worker_peak(session: Session) -> int | None:
    """Return the peak memory of the largest worker in bytes; None without workers."""
    if not session.is_distributed:
        return None
    with suppress(Exception):  # a figure for the report, no more
        return max(session.client.run(peak_rss).values(), default=None)
    return None


def plan_of(kind: RunKind, inputs: Any, settings: Any, session: Session) -> Plan:
    """Return the plan; MemoryBudgetError, which names a limit that is accepted, if it does not fit."""
    try:
        return kind.plan(inputs, settings, session)
    except MemoryBudgetError as error:
        least = _least_limit(kind, inputs, settings, session, error)
        if least is None:
            raise
        refused = error
    what, wanted = refused.what, f"at least {least}"
    raise MemoryBudgetError(what, where=refused.where, got=refused.got, wanted=wanted, remedy=refused.remedy)


def _least_limit(kind: RunKind, inputs: Any, settings: Any, session: Session, error: MemoryBudgetError) -> str | None:
    """Return the least limit, as text, that no stage of the plan refuses; None if refusals name none.

    A stage that does not fit hides those after it, and may take more under a higher limit: the limit that one refusal names may lead to
    another.
    """
    limit = getattr(settings, "memory_limit", None) or 0
    for _ in range(MOST_LIMITS):
        found = NAMED.fullmatch(str(error.wanted))
        if found is None or not limit:
            return None
        named = parse_bytes(found[1]) or 0
        # Through its text and back: the limit that is named must itself be accepted.
        text = format_bytes(named if named > limit else STEP * limit)
        limit = parse_bytes(text) or 0
        try:
            kind.plan(inputs, settings.changed(memory_limit=limit), session)
        except MemoryBudgetError as later:
            error = later
        else:
            return text
    return None

"""Estimated seconds of a kernel regression, from a block that is measured."""

from __future__ import annotations

from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np

from dkl.blocks.memory_plan import BYTES_A_SECOND, Place, Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.regression.columns.candidates import kernel_of
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.kernels.kernel_columns import block_rows
from dkl.linalg.rows.column_moments import add_moments, zero_moments
from dkl.problems.regression.column_choice import FIRST_ROUND
from dkl.resources import one_blas_thread
from dkl.runs.estimate import MOST_COLUMNS, MOST_ROWS, seconds_of_columns, timed
from dkl.runs.registry import Estimate

if TYPE_CHECKING:
    from dkl.runs.regression.kind import RegressionInputs


def estimate(inputs: RegressionInputs, settings: RegressionSettings, plan: Plan, session: Session) -> Estimate:
    """Return sizes, shown before the plan, and seconds, after it."""
    rows, shape = inputs.rows, plan.shape
    folds = f", {shape['folds']} folds" if shape["folds"] > 1 else ""
    before = [
        f"{rows.n:,} rows, {rows.n_features:,} features, {shape['targets']} target(s), "
        f"{shape['columns']:,} columns{folds}"
    ]
    seconds, passes = seconds_of_pass(rows, plan, settings, Place.of(session))
    after = [
        f"about {seconds:.2g} s for {passes} pass(es) over the rows: measured here on one block and scaled; "
        "disk taken at 500 MB/s"
    ]
    if settings.columns == "rpcholesky":
        after.append(f"before them {_rounds(shape['columns'])} shorter ones in which columns are drawn")
    return Estimate(before, [*after, "what follows does not depend on the number of rows"])


def seconds_of_pass(rows: RowSource, plan: Plan, settings: RegressionSettings, place: Place) -> tuple[float, int]:
    """Return (seconds, number of passes), timed on a block of random rows and scaled to all."""
    n, M, panel = plan.shape["n"], plan.shape["columns"], plan.shape["panel"]
    count = min(M, MOST_COLUMNS)
    height = min(n, MOST_ROWS, block_rows(M, rows.n_features, settings.dtype))
    columns = seconds_of_columns(kernel_of(settings), rows, height, count, settings.dtype)
    with one_blas_thread():
        C = np.ones((height, count), settings.dtype)
        moments, y = zero_moments(1, count, plan.shape["targets"]), np.ones((height, plan.shape["targets"] + 1))
        sums = timed(lambda: add_moments(moments, C, y))
    passes = 1 if panel is None else ceil(M / panel)
    # Of a Gram matrix in memory one triangle is made; by panels both are.
    work = passes * columns * M / count + (1 if panel is None else 2) * sums * (M / count) ** 2
    threads = Session(threads=place.threads).threads * place.processes
    seconds = work * n / height / min(threads, ceil(n / height))
    if rows.is_stored and not rows.is_mapped:
        seconds += passes * n * rows.row_bytes / BYTES_A_SECOND
    return seconds + sum(plan.disk.values()) / BYTES_A_SECOND, passes


def _rounds(count: int) -> int:
    """Return about how many rounds columns are drawn in: each doubles them."""
    return 1 + max(1, ceil(log2(max(1, count / FIRST_ROUND))) + 1)

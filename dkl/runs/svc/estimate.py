"""What a classifier will take: bytes from shapes, seconds from a block that is measured."""

from __future__ import annotations

import numpy as np

from dkl.blocks.plan import Plan
from dkl.estimators.svc.kernels import kernel_names
from dkl.estimators.svc.settings import SVCSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.runs.estimate import MOST_COLUMNS, MOST_ROWS, random_rows, timed
from dkl.runs.kind import Estimate
from dkl.runs.svc.inputs import SVCInputs

STATE_VECTORS = 20
"""That a machine's solver goes on from, at most: machines that are at their limit keep them."""
CUTS = 500
"""Of the level method, which keeps them all; more are not to be expected."""


def estimate(inputs: SVCInputs, settings: SVCSettings, plan: Plan) -> Estimate:
    """Sizes before the plan, seconds after it."""
    rows, pairs = inputs.rows, inputs.machines(settings)
    before = [
        f"{rows.n:,} rows, {rows.n_features:,} features, {len(inputs.classes)} classes, {len(pairs)} machine(s) "
        f"of {max(len(pair.rows) for pair in pairs):,} rows at most"
    ]
    seconds = seconds_of_kernel(inputs, settings, plan)
    after = [f"about {seconds:.2g} s to make the whole kernel matrix once: measured here on one block and scaled"]
    if plan.placement == "recomputed":
        after.append("of which solvers take the columns that they need, as often as they do")
    return Estimate(before, after)


def run_bytes(inputs: SVCInputs, settings: SVCSettings) -> int:
    """Two states of all machines, and the model if every row were a support vector."""
    pairs, rows = inputs.machines(settings), inputs.rows
    vectors = STATE_VECTORS + (min(settings.max_iter, CUTS) if settings.solver == "level" else 0)
    states = 2 * 8 * vectors * sum(len(pair.rows) for pair in pairs)
    return states + rows.n * (8 * (len(pairs) + 1) + rows.row_bytes)


def seconds_of_kernel(inputs: SVCInputs, settings: SVCSettings, plan: Plan) -> float:
    """Columns for a block of random rows here, scaled to all rows and columns and to the threads."""
    rows, n = inputs.rows, inputs.rows.n
    count, height = min(n, MOST_COLUMNS), min(n, MOST_ROWS)
    block = random_rows(rows, height)
    seconds = 0.0
    with one_blas_thread():
        for name in kernel_names(settings):
            kernel = Kernel(name, None, settings.degree, settings.coef0)
            points = np.arange(count) if kernel.is_precomputed else block[np.arange(count) % height]
            seconds += timed(lambda: kernel.columns(block, points, settings.dtype))  # noqa: B023
    pairs = n * (n + 1) / 2 if plan.placement == "memory" else float(n) * n
    return seconds * pairs / (count * height) / (plan.processes * plan.threads)

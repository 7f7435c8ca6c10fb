"""What a LogDet fit will take beside its memory plan: disk, and seconds from a product that is measured."""

from __future__ import annotations

import numpy as np

from dkl.blocks.plan import Plan
from dkl.estimators.logdet.plan import flops_of
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.runs.estimate import timed
from dkl.runs.kind import Estimate
from dkl.runs.logdet.inputs import LogDetInputs

MEASURED = 400
"""Rows of the square matrices whose product is timed."""
GRAPH_ENTRY = 16
"""Bytes of an entry of the graph's Laplacian on disk."""


def disk_bytes(found: LogDetInputs, settings: LogDetRunSettings) -> int:
    """The model; two states of the path, of two vectors a gamma; what K0 is made from again."""
    sizes, n, k = found.sizes(settings), found.rows.n, settings.n_components
    vectors = 5 * 8 * len(settings.gammas) * sizes.c
    model = 8 * (sizes.p**2 + (sizes.basis + sizes.p + n) * (k + 2))
    graph = n * (2 * settings.n_neighbors + 1) * GRAPH_ENTRY if settings.kernel == "laplacian" else 0
    kept = 8 * n * n if settings.kernel == "precomputed" else found.rows.n * found.rows.row_bytes
    return vectors + model + graph + kept


def estimate(found: LogDetInputs, settings: LogDetRunSettings, plan: Plan) -> Estimate:
    """Sizes before the plan, seconds after it."""
    sizes, rows, count = found.sizes(settings), found.rows, len(settings.gammas)
    before = (
        f"{rows.n:,} rows, {rows.n_features:,} features; up to {sizes.c:,} constraints on {sizes.p:,} rows; "
        f"{count} value{'s' if count > 1 else ''} of gamma"
    )
    A = np.ones((MEASURED, MEASURED))
    speed = 2.0 * MEASURED**3 / max(timed(lambda: A @ A), 1e-9)
    where = "a worker" if plan.own_bytes else "this process"
    after = (
        f"about {flops_of(sizes) / speed:.2g} s a Newton step in {where}, by a product that was measured here; up to"
    )
    return Estimate([before], [after, f"{settings.max_iter} steps at each gamma, commonly 5 to 40"])

"""Plan of a run of LogDet kernel learning: bytes from shapes and labels, seconds from a timed product."""

from __future__ import annotations

from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import Plan
from dkl.blocks.session import Session
from dkl.estimators.logdet.plan import LogDetSizes, flops_of, plan_kernel
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.runs.estimate import flops_a_second, own_rows
from dkl.runs.inputs.row_files import check_values
from dkl.runs.logdet.inputs import LogDetInputs
from dkl.runs.output.prediction_plan import Needs, PointSizes, applied_bytes, graph_needs, with_later
from dkl.runs.planner import Estimate, Planner
from dkl.runs.supervised.inputs import check_kernels, check_small_matrix

GRAPH_ENTRY = 16
"""Bytes of an entry of the graph's Laplacian on disk."""
SQUARES, BASIS_SQUARES, MATRIX_SQUARES = 12, 6, 5
"""Arrays p x p, b x b and n x n that `dkl verify` holds at a time."""
ROW_COPIES = 4
"""Copies of the rows of the basis, in double precision, while `dkl verify` compares them."""


class LogDetPlanner(Planner[LogDetRunSettings, LogDetInputs]):
    """Planner of TRIN, LogDet kernel learning."""

    def plan(self, found: LogDetInputs, settings: LogDetRunSettings, session: Session) -> Plan:
        """Return the memory plan; MemoryBudgetError if it fits neither a worker nor this process."""
        own, sizes, place = own_rows(found.rows), found.sizes(settings), Place.of(session)
        made = plan_kernel(sizes, settings, session, has_folder=True, own_rows=own).plan
        later = {
            "dkl transform": applied_bytes(_needs(found, sizes, settings), found.rows, place),
            "dkl verify": _verified(found, sizes, settings),
        }
        return with_later(made, place, settings.memory_limit, later)

    def disk_bytes(self, found: LogDetInputs, settings: LogDetRunSettings, plan: Plan) -> int:
        """Return bytes of the model, two states of the path, held-out multipliers, and what K0 is made from."""
        sizes, n, k = found.sizes(settings), found.rows.n, settings.n_components
        vectors = 8 * (5 * len(settings.gammas) + 1) * sizes.c
        model = 8 * (sizes.p**2 + (sizes.basis + sizes.p + n) * (k + 2))
        graph = n * (2 * settings.n_neighbors + 1) * GRAPH_ENTRY if settings.kernel == "laplacian" else 0
        kept = 8 * n * n if settings.kernel == "precomputed" else found.rows.n * found.rows.row_bytes
        return vectors + model + graph + kept

    def estimate(self, found: LogDetInputs, settings: LogDetRunSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes, shown before the plan, and seconds, after it."""
        sizes, rows, count = found.sizes(settings), found.rows, len(settings.gammas)
        before = (
            f"{rows.n:,} rows, {rows.n_features:,} features; up to {sizes.c:,} constraints on {sizes.p:,} rows; "
            f"{count} value{'s' if count > 1 else ''} of gamma"
        )
        where = "a worker" if plan.own_bytes else "this process"
        after = f"about {flops_of(sizes) / flops_a_second():.2g} s a Newton step in {where}, by a product that was measured here; up to"
        return Estimate([before], [after, f"{settings.max_iter} steps at each gamma, commonly 5 to 40"])

    def check_values(self, found: LogDetInputs, settings: LogDetRunSettings) -> None:
        """Raise InputError for a value that is not finite, or a kernel that is invalid on these rows."""
        check_values(found.rows)
        if settings.kernel not in ("laplacian", "precomputed"):
            check_kernels(found.rows, [Kernel(settings.kernel)])
        elif settings.kernel == "precomputed":
            check_small_matrix(found.rows)


def _needs(found: LogDetInputs, sizes: LogDetSizes, settings: LogDetRunSettings) -> Needs:
    """Return the needs of the learned kernel's coordinates."""
    rows, k = found.rows, settings.n_components
    if settings.kernel == "laplacian":
        return graph_needs(rows.n, rows.n_features, k, settings.n_neighbors)
    points = PointSizes.of(rows, sizes.basis, is_precomputed=settings.kernel == "precomputed")
    return points.needs(k, 2 * 8 * k * sizes.basis)


def _verified(found: LogDetInputs, sizes: LogDetSizes, settings: LogDetRunSettings) -> int:
    """Return the bytes of `dkl verify`: matrices, rows, and the stored rows while they are compared."""
    n = sizes.n if settings.kernel in ("laplacian", "precomputed") else 0
    matrices = 8 * (SQUARES * sizes.p**2 + BASIS_SQUARES * sizes.basis**2 + MATRIX_SQUARES * n**2)
    return matrices + own_rows(found.rows) + ROW_COPIES * 8 * sizes.basis * found.rows.n_features

"""Plan of a run of the classifier, from shapes and labels alone."""

from __future__ import annotations

from dataclasses import replace

from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import Plan
from dkl.blocks.rows.row_blocks import LARGEST_BLOCK
from dkl.blocks.session import Session
from dkl.estimators.svm.decisions import kernels_for_plans, kernels_of
from dkl.estimators.svm.plan import LEVEL_VECTORS, MachineSizes, PlannedPlace, plan_machines, points_bytes
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.runs.estimate import time_of_matrices
from dkl.runs.planner import Estimate
from dkl.runs.supervised.class_inputs import ClassInputs
from dkl.runs.supervised.classification import VOTE_BYTES
from dkl.runs.supervised.inputs import check_small_matrix
from dkl.runs.supervised.planner import SupervisedPlanner
from dkl.runs.verify.recomputed import BLOCK_BYTES as VERIFY_BYTES
from dkl.solvers.svm.interface import TwoClasses, machines

STATE_VECTORS = 20
"""Most vectors in the state of a machine's solver, which is stored if its limit stopped it."""
CUTS = 500
"""Most cuts to be expected of the level method, which keeps them all."""


class SVCPlanner(SupervisedPlanner[SVCSettings, ClassInputs]):
    """Planner of ONK, the classifier."""

    def kernels(self, found: ClassInputs, settings: SVCSettings) -> list[Kernel]:
        """Return the kernel, or those that are combined."""
        return kernels_of(settings, found.rows)

    def check_values(self, found: ClassInputs, settings: SVCSettings) -> None:
        """Check the values as for other kernels; InputError for a small matrix that is not a kernel's."""
        super().check_values(found, settings)
        if kernels_for_plans(settings)[0].is_precomputed:
            check_small_matrix(found.rows)

    def plan(self, found: ClassInputs, settings: SVCSettings, session: Session) -> Plan:
        """Return bytes of memory and disk; MemoryBudgetError if they do not fit."""
        place, pairs = PlannedPlace.of(found.rows, settings, session, len(found.classes)), _machines(found, settings)
        made = plan_machines(place, kernels_for_plans(settings), pairs, 1, settings)
        later = _later(found, MachineSizes.of(pairs, found.rows.n, settings.solver), settings)
        made = replace(made, stages=made.stages | later)
        return Place.of(session).checked(made, settings.memory_limit)

    def disk_bytes(self, found: ClassInputs, settings: SVCSettings, plan: Plan) -> int:
        """Return bytes of two states of all machines, and of models with every row a support vector."""
        pairs, rows = _machines(found, settings), found.rows
        vectors = STATE_VECTORS + (
            2 * min(settings.max_iter, CUTS) + LEVEL_VECTORS if settings.solver == "level" else 0
        )
        states = 2 * 8 * vectors * sum(len(pair.rows) for pair in pairs)
        models = 2 if settings.holdout else 1
        return states + rows.n * (models * 8 * (len(pairs) + 1) + rows.row_bytes)

    def estimate(self, found: ClassInputs, settings: SVCSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes, shown before the plan, and seconds, after it, of kernels whose width needs no values."""
        rows, pairs = found.rows, _machines(found, settings)
        sizes = f"{len(pairs)} machine(s) of {max(len(pair.rows) for pair in pairs):,} rows at most"
        before = f"{rows.n:,} rows, {rows.n_features:,} features, {len(found.classes)} classes, {sizes}"
        return Estimate([before], time_of_matrices(kernels_for_plans(settings), rows, settings.dtype, plan))


def _later(found: ClassInputs, sizes: MachineSizes, settings: SVCSettings) -> dict[str, int]:
    """Return bytes of `dkl predict` of as many rows and `dkl verify`, if all rows are support vectors.
    They fit under the limit of a fit."""
    rows, several = found.rows, len(kernels_for_plans(settings))
    n, d, row = rows.n, rows.n_features, max(rows.row_bytes, 8)
    points = n * row + points_bytes(n, d, is_sparse=rows.is_sparse)
    weights = (2 if several > 1 else 1) * sizes.coefficients + sizes.votes
    classes = VOTE_BYTES * len(found.classes) + found.classes.itemsize
    predicted = 2 * max(LARGEST_BLOCK, row) + 2 * ((24 if several > 1 else 16) * sizes.count + classes)
    models = 1 + (settings.holdout > 0) + 2 * (settings.solver == "level")
    scores = models * (several + 1) * sizes.coefficients + 8 * 8 * sizes.rows
    copies = (1 if rows.is_sparse else 3) * n * 8 * (row // 8 if rows.is_sparse else d)
    return {
        "predictions, later": rows.own_bytes + points + weights + predicted + 3 * LARGEST_BLOCK,
        "dkl verify, later": rows.own_bytes + n * row + copies + scores + weights + 4 * VERIFY_BYTES,
    }


def _machines(found: ClassInputs, settings: SVCSettings) -> list[TwoClasses]:
    """Return the two-class problems."""
    return machines(found.numbers, len(found.classes), settings.multi_class)

"""Fit of a classifier, for estimator and command alike, with all that predictions need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dkl.blocks.memory.plan import Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.progress import warn_if_worse, warn_of
from dkl.estimators.svm.checkpoint import MachineCheckpointer
from dkl.estimators.svm.decisions import FittedClassifier, Machines
from dkl.estimators.svm.fit import ENDED, FittedMachine, Step, fit_machines, result_of
from dkl.estimators.svm.quality import HeldOutRows, with_quality
from dkl.estimators.svm.settings import SVCSettings
from dkl.estimators.svm.training import Training
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch

LOOKED_AT = 256
"""Rows whose k(x, x) shows the size of a kernel."""


def assemble(training: Training, found: list[FittedMachine], result: Result) -> FittedClassifier:
    """Assemble the classifier; InputError if no row is a support vector: multipliers are numerically zero."""
    source = training.source
    coefficients = np.zeros((len(found), source.n))
    for row, machine in zip(coefficients, found, strict=True):
        row[machine.rows] = machine.coefficients
    support = np.flatnonzero((coefficients != 0).any(axis=0))
    if not support.size and result.outcome not in ENDED:
        raise _without_support(training)
    is_precomputed = training.kernels[0].is_precomputed
    points = support if is_precomputed else RowBlocks(source, Session(None, threads=1), once=True).take(support)
    machines = Machines(
        training.kernels,
        np.array([machine.shares for machine in found]),
        points,
        coefficients[:, support],
        np.array([machine.solution.point.intercept for machine in found]),
    )
    ends = [machine.solution.point for machine in found]
    proofs = [machine.solution.bound for machine in found if machine.solution.bound is not None]
    bound = {name: np.concatenate([getattr(one, name) for one in proofs]) for name in ("alpha", "cubic") if proofs}
    return FittedClassifier(
        training.classes,
        support,
        machines,
        source.n_features,
        np.array([machine.rho for machine in found]),
        np.array([point.objective for point in ends]),
        np.array([point.gap for point in ends]),
        np.array([point.relative_gap for point in ends]),
        result,
        bound=bound,
    )


@one_blas_thread()  # no system of a machine is larger than some thousand rows; and the same bits on any machine
def fit_steps(
    training: Training,
    steps: list[Step],
    settings: SVCSettings,
    session: Session,
    watch: Watch,
    checkpointer: MachineCheckpointer | None = None,
    then: Callable[[list[Any], list[FittedMachine]], None] | None = None,
) -> tuple[list[list[FittedMachine]], Plan, dict[str, float]]:
    """Fit all machines for each step, whose factor scales the bounds; see `fit_machines` for the result."""
    return fit_machines(
        training.source,
        training.kernels,
        training.numbers,
        len(training.classes),
        training.bounds,
        steps,
        settings,
        session,
        watch,
        checkpointer=checkpointer,
        then=then,
    )


def fit_classifier(
    training: Training,
    settings: SVCSettings,
    session: Session,
    watch: Watch,
    checkpointer: MachineCheckpointer | None = None,
) -> FittedClassifier:
    """Fit the classifier at the training's bounds and the settings' rho, and measure its quality.

    ConvergenceWarning where a machine did not converge, DataWarning where a linear classifier is better on held-out rows.
    """
    held = HeldOutRows(training, settings, watch)
    steps = [Step(1.0, settings.rho)]
    (found,), plan, seconds = fit_steps(training, steps, settings, session, watch, checkpointer, held.solve)
    result = with_quality(result_of(found, settings.tol, seconds, watch.seconds, plan), held)
    warn_of(result, stacklevel=3)
    warn_if_worse(result.quality, stacklevel=3)
    return replace(assemble(training, found, result), held_out=held.arrays)


def _without_support(training: Training) -> InputError:
    """Return the error of a classifier without support vectors: of a box, or for a kernel so large multipliers, near zero."""
    rows = training.source.read(0, min(training.source.n, LOOKED_AT))
    places = np.arange(rows.shape[0])
    largest = max(float(kernel.diagonal(rows, places).max()) for kernel in training.kernels)
    if largest * float(training.bounds.max()) < 1:
        return InputError("the box is too small to tell from zero", where="C", remedy="raise C")
    got, remedy = f"k(x, x) = {largest:.3g}", "scale the rows, as standardize=True does, or the kernel"
    return InputError(
        "its values are so large that multipliers are zero to rounding", where="kernel", got=got, remedy=remedy
    )

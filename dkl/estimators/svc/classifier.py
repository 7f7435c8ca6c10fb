"""One fit of a classifier, for the estimator and the command alike, and what it leaves: all that predictions need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.common.outcomes import warn_of
from dkl.estimators.common.sample_weights import box_bounds
from dkl.estimators.svc.decisions import Machines, Model
from dkl.estimators.svc.fit import ENDED, FittedMachine, Keeper, Step, fit_machines, result_of
from dkl.estimators.svc.settings import SVCSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch


@dataclass(frozen=True)
class Training:
    """What a classifier learns from: rows, classes, each row's number of one, bounds (n,) of alpha, and the kernels."""

    source: RowSource
    classes: NDArray
    numbers: NDArray[np.intp]
    bounds: NDArray[np.float64]
    class_weight: NDArray[np.float64]
    kernels: list[Kernel]

    @classmethod
    def of(
        cls,
        source: RowSource,
        classes: NDArray,
        numbers: NDArray[np.intp],
        kernels: list[Kernel],
        C: float,
        class_weight: Any = None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> Training:
        """InputError for weights that are none, and for a precomputed kernel that is not square."""
        bounds, weights = box_bounds(C, class_weight, classes, numbers, sample_weight)
        if kernels[0].is_precomputed and source.n != source.n_features:
            got = f"shape ({source.n}, {source.n_features})"
            raise InputError("a precomputed kernel must be square", where="X", got=got, wanted="(n, n)")
        return cls(source, classes, numbers, bounds, weights, kernels)


@dataclass(frozen=True)
class FittedClassifier(Model):
    """Also rho, objective, gap and relative gap (M,) of the machines, and how they were found."""

    rhos: NDArray[np.float64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    relative_gaps: NDArray[np.float64]
    result: Result

    @classmethod
    def of(cls, training: Training, found: list[FittedMachine], result: Result) -> FittedClassifier:
        """InputError where no row is a support vector: the box cannot be told from zero."""
        source = training.source
        coefficients = np.zeros((len(found), source.n))
        for row, machine in zip(coefficients, found, strict=True):
            row[machine.rows] = machine.coefficients
        support = np.flatnonzero((coefficients != 0).any(axis=0))
        if not support.size and result.outcome not in ENDED:
            raise InputError("the box is too small to tell from zero", where="C", remedy="raise C")
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
        return cls(
            training.classes,
            support,
            machines,
            source.n_features,
            np.array([machine.rho for machine in found]),
            np.array([point.objective for point in ends]),
            np.array([point.gap for point in ends]),
            np.array([point.relative_gap for point in ends]),
            result,
        )


def fit_steps(
    training: Training,
    steps: list[Step],
    settings: SVCSettings,
    session: Session,
    watch: Watch,
    keeper: Keeper | None = None,
) -> tuple[list[list[FittedMachine]], Plan, dict[str, float]]:
    """For each step, whose factor is that of the bounds, all machines; the plan; seconds by stage."""
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
        keeper=keeper,
    )


def fit_classifier(
    training: Training, settings: SVCSettings, session: Session, watch: Watch, keeper: Keeper | None = None
) -> FittedClassifier:
    """The classifier at the training's bounds and the settings' rho; ConvergenceWarning where a machine did not converge."""
    (found,), plan, seconds = fit_steps(training, [Step(1.0, settings.rho)], settings, session, watch, keeper)
    result = result_of(found, seconds, plan)
    warn_of(result, stacklevel=3)
    return FittedClassifier.of(training, found, result)

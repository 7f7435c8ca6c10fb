"""Fit of a classifier, for estimator and command alike, with all that predictions need; and its models on a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.progress import warn_if_worse, warn_of
from dkl.estimators.svm.checkpoint import MachineCheckpointer
from dkl.estimators.svm.decisions import FittedClassifier, Machines, Training
from dkl.estimators.svm.fit import ENDED, FittedMachine, Step, fit_machines, result_of
from dkl.estimators.svm.quality import HeldOutRows, with_quality
from dkl.estimators.svm.settings import SVCSettings
from dkl.solvers.watch import Result, Watch

LOOKED_AT = 256
"""Rows whose k(x, x) shows the size of a kernel."""


def assemble(training: Training, found: list[FittedMachine], result: Result) -> FittedClassifier:
    """Assemble the classifier; InputError if no row is a support vector: multipliers are numerically zero."""
    source = training.source
    coefficients = np.zeros((len(found), source.n))
    for row, machine in zip(coefficients, found, strict=True):
        row[machine.rows] = machine.coefficients
    support = np.flatnonzero((coefficients != 0).any(axis=0))
    # A fit that was stopped early may have none yet, and is returned with its warning.
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


def classifier_of(
    training: Training, tol: float, seconds: dict[str, float], total: float, plan: Plan, fitted: list[FittedMachine]
) -> FittedClassifier:
    """Return the classifier of one step's machines, which took a part of `total` seconds."""
    return assemble(training, fitted, result_of(fitted, tol, seconds, total, plan))


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
    (found,), plan, seconds = fit_machines(training, steps, settings, session, watch, checkpointer, held.solve)
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


# -- grid --------------------------------------------------------------------------------------------------------------
# The models of a classifier on a grid of C and rho.


@dataclass(frozen=True)
class Grid:
    """Values of C and rho in the order given, and the way through them: C upwards, for each rho downwards.

    `order` (k, r) holds the step of each. The first rho of a C starts at that of the C before. rhos: numbers, or "scale" alone.
    """

    Cs: NDArray[np.float64]
    rhos: NDArray
    steps: list[Step]
    order: NDArray[np.intp]

    @classmethod
    def of(cls, Cs: object, rhos: object) -> Grid:
        """Build the grid from values of C and rho; InputError unless they are lists of positive numbers."""
        C_values = _positive(Cs, "Cs")
        by_rule = isinstance(rhos, str) and rhos == "scale"
        rho_values = np.array([rhos]) if by_rule else _positive(rhos, "rhos", ", or 'scale'")
        # From large rho, the plain machine, to small: each step moves the solution a little.
        downwards = [0] if by_rule else np.argsort(-rho_values, kind="stable")
        steps: list[Step] = []
        order = np.empty((len(C_values), len(rho_values)), np.intp)
        for row, i in enumerate(np.argsort(C_values, kind="stable")):
            for column, j in enumerate(downwards):
                # Its neighbor on the grid: the rho before, or at the first rho that of the C before, whose coefficients fit a larger box.
                before = len(steps) - (1 if column else len(rho_values))
                order[i, j] = len(steps)
                steps.append(Step(float(C_values[i]), rho_values[j].item(), before if row or column else None))
        return cls(C_values, rho_values, steps, order)


@dataclass(frozen=True)
class SVCPath:
    """Models at k values of C and r of rho, or at rho="scale", r = 1; m machines, n rows.

    coefficients (k, r, m, n): y alpha; intercepts, objectives and relative gaps (k, r, m); products (k, r): with the kernel
    matrix; result: outcome, history and seconds of all of them. `model(i, j)` is the fitted classifier of Cs[i] and
    rhos[j]. Where a callback ended it the models to come are what they would have started at.
    """

    Cs: NDArray[np.float64]
    rhos: NDArray
    intercepts: NDArray[np.float64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    products: NDArray[np.int64]
    n: int
    result: Result = field(repr=False)
    _machines: list[list[list[FittedMachine]]] = field(repr=False)
    _make: Callable[[float, float | str, list[FittedMachine]], Any] = field(repr=False)

    @classmethod
    def of(
        cls, grid: Grid, found: list[list[FittedMachine]], make: Callable[..., object], n: int, result: Result
    ) -> SVCPath:
        """Build from the machines of each step of a grid; `make` makes a classifier of C, rho and machines."""
        machines = [[found[step] for step in row] for row in grid.order]

        def of_each(value: Callable[[FittedMachine], float]) -> NDArray[np.float64]:
            return np.array([[[value(machine) for machine in cell] for cell in row] for row in machines])

        return cls(
            grid.Cs,
            grid.rhos,
            of_each(lambda machine: machine.solution.point.intercept),
            of_each(lambda machine: machine.solution.point.objective),
            of_each(lambda machine: machine.solution.point.relative_gap),
            of_each(lambda machine: machine.solution.products).sum(axis=2).astype(np.int64),
            n,
            result,
            machines,
            make,
        )

    @property
    def coefficients(self) -> NDArray[np.float64]:
        """Return y alpha (k, r, m, n)."""
        out = np.zeros((*self.intercepts.shape, self.n))
        for i, row in enumerate(self._machines):
            for j, cell in enumerate(row):
                for k, machine in enumerate(cell):
                    out[i, j, k, machine.rows] = machine.coefficients
        return out

    def model(self, i: int, j: int) -> Any:
        """Return the fitted classifier of Cs[i] and rhos[j]."""
        return self._make(float(self.Cs[i]), self.rhos[j].item(), self._machines[i][j])


def _positive(values: object, where: str, also: str = "") -> NDArray[np.float64]:
    try:
        found = np.atleast_1d(np.asarray(values, np.float64))
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.ndim != 1 or not found.size or not (np.isfinite(found).all() and (found > 0).all()):
        raise InputError("not a list of values", where=where, got=repr(values)[:80], wanted=f"finite numbers > 0{also}")
    return found

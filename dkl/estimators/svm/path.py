"""The models of a classifier on a grid of C and rho."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.estimators.svm.fit import FittedMachine, Step
from dkl.solvers.result import Result


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
        downwards = [0] if by_rule else np.argsort(-rho_values, kind="stable")
        steps: list[Step] = []
        order = np.empty((len(C_values), len(rho_values)), np.intp)
        for row, i in enumerate(np.argsort(C_values, kind="stable")):
            for column, j in enumerate(downwards):
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

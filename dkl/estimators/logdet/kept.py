"""The solved gammas of a path, stored in a run's folder, from which a resumed fit continues."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.logdet.arrays import states_of
from dkl.problems.logdet import LogDetCertificate
from dkl.solvers.logdet import LogDetSolution
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row
from dkl.stores.keeper import HoldingKeeper
from dkl.stores.run import RunStore

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Solved:
    """Solution at a gamma of the path; its rows; error: of nearest labeled neighbors, None without labels."""

    solution: LogDetSolution
    rows: list[Row] = field(repr=False)
    error: float | None

    def later(self, seconds: float) -> Solved:
        """Return the same with rows whose clock began `seconds` after that of the run, as on a worker."""
        return replace(self, rows=[{**row, "seconds": row["seconds"] + seconds} for row in self.rows])


class StoredPath(HoldingKeeper[list[Solved]]):
    """Store of the solved gammas in a run's folder, a commit each: the next starts at the last of them."""

    def __init__(self, run: RunStore) -> None:
        super().__init__(run, 1)
        self.states = states_of(run)
        self.states.remove_leftovers()
        self.number = 0
        self.held = self.load() or []

    def begun(self, gammas: list[float], n_constraints: int) -> list[Solved]:
        """Return the stored solutions of the path's first gammas; [] for another path or other constraints."""
        known = [one.solution.gamma for one in self.held] == gammas[: len(self.held)]
        if not known or any(one.solution.multipliers.shape != (n_constraints,) for one in self.held):
            self.held = []
        return list(self.held)

    def keep(self, solved: Solved) -> None:
        """Commit one more solution; one that is not SOLVED is not stored, but solved again on resuming."""
        if solved.solution.outcome is Outcome.SOLVED:
            self.held = [*self.held, solved]
            self._kept(at_end=True)

    def load(self) -> list[Solved] | None:
        """Return the solutions in the newest complete state; None if they are invalid."""
        self.number, found, notes = self.states.read()
        try:
            rows = zip(notes["solved"], found["multipliers"], found["margins"], strict=True) if found else ()
            return [_solved(told, *vectors) for told, *vectors in rows]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None  # well sealed, but nothing that was ever written: it counts as not there

    def write(self, state: list[Solved]) -> dict[str, Any]:
        """Put the path on disk."""
        self.number += 1
        found = [one.solution for one in state]
        arrays = {
            "multipliers": np.stack([one.multipliers for one in found]),
            "margins": np.stack([one.margins for one in found]),
        }
        self.states.write(self.number, arrays, {"solved": list(map(_told, state))})
        return {"gammas": len(state)}


def _told(one: Solved) -> dict[str, Any]:
    """Return a solution without its vectors, as stored in JSON."""
    found = one.solution
    certificate = {"objective": found.certificate.objective, "bound": found.certificate.bound}
    taken = {"n_iter": found.n_iter, "n_products": found.n_products, "solver": found.solver, "method": found.method}
    return {"gamma": found.gamma, **certificate, **taken, "error": one.error, "rows": one.rows}


def _solved(told: dict[str, Any], multipliers: Vector, margins: Vector) -> Solved:
    """Parse what `_told` stored; KeyError, TypeError or ValueError (among others) if invalid."""
    certificate = LogDetCertificate(float(told["objective"]), float(told["bound"]))
    solution = LogDetSolution(
        Outcome.SOLVED, float(told["gamma"]), multipliers, margins, certificate, int(told["n_iter"]), int(told["n_products"]),
        str(told["solver"]), str(told["method"]),
    )  # fmt: skip
    rows = [{name: _plain(name, value) for name, value in row.items()} for row in told["rows"]]
    return Solved(solution, rows, None if told["error"] is None else float(told["error"]))


def _plain(name: str, value: Any) -> Any:
    """Convert a cell of the history to the type of its column; TypeError or ValueError if invalid."""
    if name == "stage":
        return str(value)
    return int(value) if name in ("iteration", "products") else float(value)

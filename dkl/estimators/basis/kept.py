"""The low-rank method's state, stored in a run's folder, from which a resumed fit continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dkl.estimators.basis.declared import STATES
from dkl.solvers.qsdp_low_rank import STEPS, LowRankState
from dkl.solvers.watch import Row, Watch
from dkl.stores.keeper import HoldingKeeper
from dkl.stores.kept_states import KeptStates
from dkl.stores.run import RunStore

COUNTS, NUMBERS = ("iteration", "taken", "products", "idle"), ("gap_before", "decrease")


@dataclass(frozen=True)
class Kept:
    """A state, and a function that returns the history's rows up to it, called on commits alone."""

    state: LowRankState
    rows: Callable[[], list[Row]] = field(repr=False)


def states_of(run: RunStore) -> KeptStates:
    """Return the store of the states that are written while a fit is under way."""
    return KeptStates(run.path / "engine", STATES, "engine", "the solver's state")


def kept_state(run: RunStore) -> tuple[int, Kept | None]:
    """Return (number, newest complete state); the state is None if there is no valid one."""
    number, found, notes = states_of(run).read()
    if not found:
        return number, None
    try:
        return number, _kept(found, notes)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return number, None


class StoredState(HoldingKeeper[Kept | None]):
    """Store of the state in a run's folder, written every `every` steps of the method or by time."""

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every)
        self.states = states_of(run)
        self.states.remove_leftovers()
        self.number, self.held = kept_state(run)

    def begun(self, watch: Watch, m: int) -> LowRankState | None:
        """Return the state to resume from, its rows restored to `watch`; None if none of size m is stored."""
        if self.held is None or self.held.state.factor.shape[0] != m:
            return None
        watch.resume(self.held.rows())
        self.rule.step = self.rule.committed = self.held.state.iteration
        return self.held.state

    def keep(self, state: LowRankState, watch: Watch) -> None:
        """Record the method's current state, and commit it if due."""
        if self.rule.step != state.iteration or state.iteration == 0:
            count = watch.n_rows
            self.held = Kept(state, lambda: watch.history[:count])
            self.rule.step = state.iteration
            self.commit_due()

    def load(self) -> Kept | None:
        """Return the newest valid state; see `kept_state`."""
        return kept_state(self.run)[1]

    def write(self, state: Kept | None) -> dict[str, Any]:
        """Put the state on disk."""
        assert state is not None  # a step was taken
        self.number, now = self.number + 1, state.state
        arrays = {"factor": now.factor}
        if now.best is not now.factor:
            arrays["best"] = now.best
        notes = {name: getattr(now, name) for name in ("step", *COUNTS, *NUMBERS)}
        self.states.write(self.number, arrays, {**notes, "rows": state.rows()})
        return {"iteration": now.iteration}


def _kept(found: dict[str, Any], notes: dict[str, Any]) -> Kept:
    """Parse a stored state; raises KeyError, TypeError, ValueError or others for invalid notes."""
    # Aligned, as what the method makes itself.
    factor = np.array(found["factor"], order="C")
    best = np.array(found["best"], order="C") if "best" in found else factor
    counts = {name: notes[name] for name in COUNTS}
    if notes["step"] not in (*STEPS, "start") or any(type(count) is not int or count < 0 for count in counts.values()):
        raise ValueError("not a state of the method")
    if len(best) != len(factor) or not (np.isfinite(factor).all() and np.isfinite(best).all()):
        raise ValueError("not factors of one problem")
    numbers: dict[str, Any] = {name: float(notes[name]) for name in NUMBERS}
    rows = [{name: _plain(name, value) for name, value in row.items()} for row in notes["rows"]]
    return Kept(LowRankState(factor, best, notes["step"], **counts, **numbers), lambda: rows)


def _plain(name: str, value: Any) -> Any:
    """Convert a cell of the history to the type of its column; TypeError or ValueError if invalid."""
    if name in ("stage", "step"):
        return str(value)
    return int(value) if name in ("iteration", "rank") else float(value)

"""ONK in a run's folder: machines stored for resuming, and the resulting model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dkl.blocks.session import Session
from dkl.estimators.common.run_arrays import report_of
from dkl.estimators.common.work_folder import folder_of
from dkl.estimators.svc.arrays import states_of
from dkl.estimators.svc.classifier import FittedClassifier, fit_classifier
from dkl.estimators.svc.kept import Ended, KeptMachine, as_arrays, known
from dkl.estimators.svc.model import store_model
from dkl.estimators.svc.settings import SVCSettings
from dkl.estimators.svc.training import Training
from dkl.solvers.result import Outcome
from dkl.solvers.svm_pairs import machines
from dkl.solvers.svm_state import State
from dkl.solvers.watch import Row, Watch
from dkl.stores.keeper import HoldingKeeper
from dkl.stores.run import RunStore


class StoredMachines(HoldingKeeper[dict[int, KeptMachine]]):
    """Store of the machines in a run's folder, written every `every` checks of their solvers or by time.

    A step of the rule is a check.

    A commit is of all machines at one moment; what it is on disk: `kept.as_arrays`.
    """

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every)
        self.states = states_of(run)
        self.states.remove_leftovers()
        self.number = 0
        self.held = self.machines = self.load() or {}
        self.rows: dict[int, list[Row]] = {}

    def begun(self, machine: int) -> KeptMachine | None:
        """Return what a machine starts with; None if nothing of it is stored."""
        found = self.machines.get(machine)
        self.rows[machine] = [] if found is None or found.state is None else found.rows
        return found

    def drop(self, machine: int) -> None:
        """Forget the record of a machine, which then starts from scratch."""
        del self.machines[machine]
        self.rows[machine] = []

    def keep(self, machine: int, state: State) -> None:
        """Record the state of a machine's solver at a check; its arrays are not modified, so not copied."""
        rows = self.rows.setdefault(machine, [])
        self.machines[machine] = KeptMachine(state=state, history=(rows, len(rows)))  # at once: Ctrl-C may come between
        self._kept(at_end=False)

    def ended(self, machine: int, ended: Ended) -> None:
        """Record a machine's result in place of its solver's state, or next to it if that may continue."""
        kept = self.machines.get(machine, KeptMachine())
        goes_on = ended.outcome is Outcome.ITERATION_LIMIT and kept.ended is None
        self.machines[machine] = replace(kept, ended=ended) if goes_on else KeptMachine(ended)
        self._kept(at_end=True)

    def __call__(self, row: Row) -> None:
        """Collect a machine's row, and commit if due: the next check may be long in coming. A callback."""
        if "machine" in row:
            self.rows.setdefault(row["machine"], []).append(row)
        self.commit_due()

    def load(self) -> dict[int, KeptMachine] | None:
        """Return the machines of the newest valid state."""
        self.number, found, notes = self.states.read()
        return known(found, notes)

    def write(self, state: dict[int, KeptMachine]) -> dict[str, Any]:
        """Put the machines on disk."""
        self.number += 1
        self.states.write(self.number, *as_arrays(state))
        return {"machines": len(state), "solved": sum(kept.ended is not None for kept in state.values())}


def fit_in_run(
    run: RunStore,
    training: Training,
    settings: SVCSettings,
    session: Session,
    watch: Watch,
    notes: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> FittedClassifier:
    """Fit in a run's folder, resumed from its machines and model; bit-identical to an undisturbed fit.

    Commits come at the solvers' checks: when the last is 30 seconds old, or every `every` checks. So a kill costs what came
    after the last commit, and at most the round under way of a working set, or ten gradient steps, more than these 30
    seconds. Several kernels have no state that is kept: of them the machine under way restarts.

    notes: returns the report with more in it, called at the end. Raises InterruptedRunError where the watch ends the run for it to be
    resumed.
    """
    keeper = StoredMachines(run, settings.checkpoint_every)
    with (
        folder_of(run.path, settings.work_dir, "kernels", run.attempt) as work_dir,
        keeper.kept_to_the_end(watch, "stopped between two steps of a machine"),
    ):
        local = settings.changed(work_dir=work_dir)
        fitted = fit_classifier(training, local, session, watch.stage(callbacks=[keeper]), keeper)
    store_model(run, fitted)
    if not fitted.result.outcome.converged:
        keeper.commit_rest()  # for a later resume
    run.write_report(notes(_report(fitted, training, settings)))
    if fitted.result.outcome.converged:
        keeper.states.drop()
    return fitted


def _report(fitted: FittedClassifier, training: Training, settings: SVCSettings) -> dict[str, Any]:
    names, decided = fitted.classes.tolist(), fitted.machines
    outputs = [
        {
            "between": [None if number is None else names[number] for number in pair.between],
            "rows": len(pair.rows),
            "n_support": int(np.count_nonzero(decided.coefficients[machine])),
            "rho": float(fitted.rhos[machine]),
            "objective": float(fitted.objectives[machine]),
            "gap": float(fitted.gaps[machine]),
            "relative_gap": float(fitted.relative_gaps[machine]),
            "kernel_weights": decided.shares[machine].tolist(),
        }
        for machine, pair in enumerate(machines(training.numbers, len(names), settings.multi_class))
    ]
    return report_of(fitted.result, settings.as_dict(), n_support=len(fitted.support), outputs=outputs)

"""ONK in a run's folder: resumed from its checkpoints, the resulting model, and the classifier that is loaded from it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dkl.blocks.session import Session
from dkl.estimators.base.run_arrays import columns_of, read_history, report_of, result_in
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.base.work_folder import folder_of
from dkl.estimators.svm.checkpoint import MachineCheckpointer
from dkl.estimators.svm.classifier import fit_classifier
from dkl.estimators.svm.decisions import FittedClassifier, Training
from dkl.estimators.svm.learner import OptimalNeighborhoodSVC
from dkl.estimators.svm.model import load_model, reported_rho, store_model
from dkl.estimators.svm.settings import SVCSettings
from dkl.solvers.svm.interface import machines
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore


def fit_in_run(
    run: RunStore,
    training: Training,
    settings: SVCSettings,
    session: Session,
    watch: Watch,
    notes: Callable[[dict[str, object]], dict[str, object]] = dict,
) -> FittedClassifier:
    """Fit in a run's folder, resumed from its machines and model; bit-identical to an undisturbed fit.

    Commits come at the solvers' checks: when the last is 30 seconds old, or every `every` checks. So a kill costs what came
    after the last commit, and at most the round under way of a working set, or ten gradient steps, more than these 30
    seconds. Several kernels have no state that is kept: of them the machine under way restarts.

    notes: returns the report with more in it, called at the end. Raises InterruptedRunError where the watch ends the run for it to be
    resumed.
    """
    checkpointer = MachineCheckpointer(run, settings.checkpoint_every)
    with (
        folder_of(run.path, settings.work_dir, "kernels", run.attempt) as work_dir,
        checkpointer.committed_at_interrupt(watch, "stopped between two steps of a machine"),
    ):
        local = settings.changed(work_dir=work_dir)
        fitted = fit_classifier(training, local, session, watch.stage(callbacks=[checkpointer]), checkpointer)
    store_model(run, fitted)
    if not fitted.result.outcome.converged:
        checkpointer.commit_rest()  # for a later resume
    run.write_report(notes(_report(fitted, training, settings)))
    if fitted.result.outcome.converged:
        checkpointer.folder.drop()
    return fitted


def _report(fitted: FittedClassifier, training: Training, settings: SVCSettings) -> dict[str, object]:
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


# -- loading -----------------------------------------------------------------------------------------------------------


def load_classifier(run: RunStore) -> OptimalNeighborhoodSVC:
    """Load the fitted classifier of a run, as `dkl fit svc` left it."""
    model, result = load_model(run), result_in(run, read_history(run))
    outputs, settings = run.report().get("outputs", []), run.config["settings"]
    figures = columns_of(outputs, "objective", "gap", "relative_gap")
    found = remade(OptimalNeighborhoodSVC, SVCSettings, settings, work_dir=None)
    found.scale_ = read_scale(run)
    rhos = np.array([reported_rho(output, settings["rho"]) for output in outputs])
    certificate = rhos, figures["objective"], figures["gap"], figures["relative_gap"]
    found._adopt(
        FittedClassifier(model.classes, model.support, model.machines, model.n_features, *certificate, result=result)
    )
    return found

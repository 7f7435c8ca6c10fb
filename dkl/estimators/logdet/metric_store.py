"""TRIN's metrics in a run's folder: a path of gammas, each stored once solved, and the metric at its end; and its learner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory.plan import note_idle_workers
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import DensePlace, DenseWork, blas_threads
from dkl.estimators.base.mahalanobis import prior_metric
from dkl.estimators.base.plot_rows import sampled
from dkl.estimators.base.run_arrays import read_history, report_of, result_in, trained_on, write_history
from dkl.estimators.base.settings import remade
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.logdet.fit import GammaProblem, pose_metric, result_of
from dkl.estimators.logdet.metric import LogDetMetricLearner
from dkl.estimators.logdet.metric_model import check_metric_model, metric_settings_in
from dkl.estimators.logdet.plan import KernelPlan, plan_metric, sizes_of
from dkl.estimators.logdet.quality import HeldOutPart
from dkl.estimators.logdet.settings import LogDetMetricRunSettings, LogDetMetricSettings
from dkl.estimators.logdet.store import PathCheckpointer, PathPoint, follow, outputs_of
from dkl.linalg.symmetric.symmetric_maps import metric_components
from dkl.problems.logdet.problem import LogDetCertificate
from dkl.solvers.logdet.solve import LogDetSolution
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

Matrix = NDArray[np.float64]


def fit_metric_in_run(
    run: RunStore, rows: Matrix, side: SideInformation, settings: LogDetMetricRunSettings, session: Session, watch: Watch,
    notes: Callable[[dict[str, object]], dict[str, object]] = dict, own_rows: int = 0,
) -> Result:  # fmt: skip
    """Fit a path in a run's folder, resumed from its stored gammas; bit-identical to an undisturbed fit.

    rows (n, d), dense; own_rows: bytes of them as they were read. A kill costs the gamma under way.

    Raises MemoryBudgetError where there is no room, InterruptedRunError where the watch ends the run for it to be resumed.
    """
    checkpointer, seconds = PathCheckpointer(run), dict[str, float]()

    def chosen() -> KernelPlan:
        sizes = sizes_of(side, settings.kernel, settings.loss, int(rows.shape[1]))
        return plan_metric(sizes, settings, session, own_rows)

    def again() -> DensePlace:
        return chosen().place

    plan = chosen()
    note_idle_workers(plan.plan)
    with checkpointer.committed_at_interrupt(watch, "stopped between two steps of a path"):
        began = time.perf_counter()
        W0 = prior_metric(settings.prior, rows)
        posed = pose_metric(rows, W0, side, settings.changed(solver=plan.solver), settings.loss_params)
        seconds["prior"] = time.perf_counter() - began
        work = DenseWork(session, posed, plan.place, again)
        held = HeldOutPart.of(posed, side, settings.gammas[-1], watch, work.call)
        begin: Sequence[LogDetSolution] = held.start if len(settings.gammas) == 1 else ()
        began = time.perf_counter()
        path = follow(posed, None, settings.gammas, begin, work, checkpointer, watch)
        seconds["solve"] = time.perf_counter() - began
    W = work.call(GammaProblem.learned, path[-1])
    with blas_threads(plan.threads):
        components = metric_components(W)
    result = result_of(path, settings.tol, seconds, watch, plan.plan.as_dict())
    result = held.added_to(result, watch).placed(work.place.text)
    _store_model(run, rows, posed, path, components)
    write_history(run, result.history)
    if held.arrays and result.quality is not None:
        run.write_arrays("held_out", held.arrays)
    sizes = {"n_points": len(posed.points), "n_constraints": len(posed.constraints)}
    run.write_report(notes(report_of(result, settings.as_dict(), **sizes, outputs=outputs_of(path))))
    if result.outcome.converged:
        checkpointer.folder.drop()
    return result


def _store_model(run: RunStore, rows: Matrix, posed: GammaProblem, path: list[PathPoint], components: Matrix) -> None:
    arrays = {
        "components": components,
        "prior": posed.W0,
        "touched": posed.points.astype(np.int64),
        "gammas": np.array([one.gamma for one in path]),
        "multipliers": np.stack([one.multipliers for one in path]),
        "points": rows[sampled(len(rows))],
    }
    run.write_arrays("model", {name: np.ascontiguousarray(values) for name, values in arrays.items()})


def load_metric(run: RunStore) -> LogDetMetricLearner:
    """Load a run's fitted learner, at its path's last gamma; StoreError for parts that do not match."""
    settings, found = metric_settings_in(run), run.read_arrays("model")
    check_metric_model(run, found)
    last = run.report()["outputs"][-1]
    learner = remade(
        LogDetMetricLearner, LogDetMetricSettings, {**run.config["settings"], "gamma": settings.gammas[-1]},
        loss_params=settings.loss_params or None,
    )  # fmt: skip
    learner.components_ = found["components"]
    learner._prior_metric, learner._rows_kept = found["prior"], found["points"]
    learner._n_rows, learner.n_features_in_ = trained_on(run)
    learner.scale_ = read_scale(run)
    learner.result_ = result_in(run, read_history(run))
    learner.certificate_ = LogDetCertificate(float(last["objective"]), float(last["bound"]))
    learner.n_iter_, learner.solver_ = int(last["n_iter"]), str(last["solver"])
    learner.method_ = str(last["method"])
    return learner

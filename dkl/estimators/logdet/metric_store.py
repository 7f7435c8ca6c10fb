"""TRIN's metrics in a run's folder: a path of gammas, each stored once solved, and the metric at its end; and its learner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import blas_threads
from dkl.estimators.base.mahalanobis import prior_metric
from dkl.estimators.base.plot_rows import sampled
from dkl.estimators.base.run_arrays import read_history, result_in, trained_on
from dkl.estimators.base.settings import remade
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.logdet.fit import GammaProblem, pose_metric
from dkl.estimators.logdet.metric import LogDetMetricLearner
from dkl.estimators.logdet.metric_model import check_metric_model, metric_settings_in
from dkl.estimators.logdet.plan import KernelPlan, plan_metric, sizes_of
from dkl.estimators.logdet.settings import LogDetMetricRunSettings, LogDetMetricSettings
from dkl.estimators.logdet.store import Notes, SolvedPath
from dkl.linalg.eigen.principal_coordinates import metric_components
from dkl.problems.logdet.problem import LogDetCertificate
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

Matrix = NDArray[np.float64]


def fit_metric_in_run(
    run: RunStore, rows: Matrix, side: SideInformation, settings: LogDetMetricRunSettings, session: Session, watch: Watch,
    notes: Notes = dict, own_rows: int = 0,
) -> Result:  # fmt: skip
    """Fit a path of metrics in a run's folder, from dense rows (n, d) and as `SolvedPath.of`; own_rows: bytes of them as read."""

    def planned() -> KernelPlan:
        sizes = sizes_of(side, settings.kernel, settings.loss, int(rows.shape[1]))
        return plan_metric(sizes, settings, session, own_rows)

    def posed_by(plan: KernelPlan) -> GammaProblem:
        W0 = prior_metric(settings.prior, rows)
        return pose_metric(rows, W0, side, settings.changed(solver=plan.solver), settings.loss_params)

    solved = SolvedPath.of(run, side, None, settings, session, watch, planned, posed_by, "prior")
    W = solved.work.call(GammaProblem.learned, solved.path[-1])
    with blas_threads(solved.plan.threads):
        whole = metric_components(W)
        components = solved.work.data.cut(whole)
    found = {"components": components, "prior": solved.work.data.W0, "points": rows[sampled(len(rows))]}
    if settings.n_components is None:
        return solved.store(lambda: found, notes)
    return solved.store(lambda: found | {"whole_components": whole}, notes, n_components=len(components))


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

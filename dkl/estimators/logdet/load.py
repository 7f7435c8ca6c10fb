"""Loading of the learner from a run of LogDet kernel learning, without its training data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.learned_kernel import LeadingComponents
from dkl.estimators.base.prior_kernels import GraphKernel, PrecomputedPrior, PriorKernel, RowKernel
from dkl.estimators.base.run_arrays import read_history, read_points, result_in, trained_on
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.logdet.learner import LogDetKernelLearner
from dkl.estimators.logdet.model import check_model, kept_kernel, settings_in, stored_laplacian, stored_similarity
from dkl.estimators.logdet.settings import LogDetKernelSettings, LogDetRunSettings
from dkl.problems.logdet.problem import LogDetCertificate
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserRows

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class KeptRows(RowKernel):
    """Kernel of rows of which only some are stored: `numbers` (b,) of the training rows, ascending."""

    numbers: Indices = field(default_factory=lambda: np.empty(0, np.intp))

    def within(self, points: Indices) -> Matrix:
        """Return K0 (p, p) by the numbers of the training rows."""
        return super().within(self._places(points))

    def across(self, X: UserRows, *points: Indices) -> list[Matrix]:
        """Return k0 (m, p) of rows X with each set of training rows."""
        return super().across(X, *map(self._places, points))

    def _places(self, points: Indices) -> Indices:
        return np.searchsorted(self.numbers, points)


def load_learner(run: RunStore) -> LogDetKernelLearner:
    """Load a run's fitted learner, at its path's last gamma; StoreError for parts that do not match."""
    settings, found = settings_in(run), run.read_arrays("model")
    prior = _prior(run, settings, found)
    points, M = found["touched"].astype(np.intp), found["M"]
    report = run.report()
    last = report["outputs"][-1]
    learner = remade(
        LogDetKernelLearner, LogDetKernelSettings, {**run.config["settings"], "gamma": settings.gammas[-1]},
        kernel_params=settings.kernel_params or None, loss_params=settings.loss_params or None,
    )  # fmt: skip
    basis = found["basis"].astype(np.intp)
    components = LeadingComponents(basis, found["weights"], found["weights_at_points"], found["offset"])
    learner._keep_kernel(prior, points, M, components)
    learner.scale_ = read_scale(run)
    learner.n_features_in_ = trained_on(run)[1]
    learner.result_ = result_in(run, read_history(run))
    learner.certificate_ = LogDetCertificate(float(last["objective"]), float(last["bound"]))
    learner.n_iter_, learner.solver_, learner._path = int(last["n_iter"]), str(last["solver"]), report["outputs"]
    learner.method_ = str(last.get("method", ""))  # missing in earlier runs
    return learner


def _prior(run: RunStore, settings: LogDetRunSettings, found: dict[str, NDArray]) -> PriorKernel:
    where = f"{run.path}/model"
    check_model(run, found)
    try:
        if settings.kernel == "precomputed":
            return PrecomputedPrior(found["prior"])
        if settings.kernel == "laplacian":
            similarity, laplacian = stored_similarity(settings, found, where), stored_laplacian(found, where)
            kind = settings.kernel_params.get("laplacian", "normalized")
            return GraphKernel(read_points(found, where), laplacian, similarity, kind)
        rows = read_points(found, where)
    except KeyError as error:
        raise StoreError(f"no {error.args[0]} in it", where=where) from error
    if rows.shape != (len(found["basis"]), trained_on(run)[1]):
        raise StoreError("rows of another shape", where=where, got=rows.shape)
    return KeptRows(kept_kernel(settings, found), rows, found["basis"].astype(np.intp))

"""A learned kernel in a run's folder, so that it needs no training data: what of K0 is kept, and the estimator made from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.common.learned_kernel import Components
from dkl.estimators.common.prior_kernels import GivenKernel, GraphKernel, PriorKernel, RowKernel
from dkl.estimators.common.run_arrays import check_lengths, point_arrays, read_points, result_in, trained_on
from dkl.estimators.common.settings import remade
from dkl.estimators.common.stored_history import read_history
from dkl.estimators.logdet.learner import LogDetKernelLearner
from dkl.estimators.logdet.settings import LogDetKernelSettings, LogDetRunSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.logdet import LogDetCertificate
from dkl.stores.run import RunStore

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


def prior_arrays(prior: PriorKernel, rows: Any, points: Indices, components: Components) -> dict[str, NDArray]:
    """What K0 is made from again: the matrix itself, the graph with its rows and their coordinates, or rows of the basis."""
    if isinstance(prior, GivenKernel):
        return {"prior": prior.matrix}
    if isinstance(prior, RowKernel):
        gamma = {} if prior.kernel.gamma is None else {"kernel_gamma": np.array([prior.kernel.gamma])}
        return point_arrays(rows[components.basis]) | gamma
    assert isinstance(prior, GraphKernel)
    graph, folded = prior.graph, np.zeros((prior.n, components.weights.shape[1]))
    folded[components.basis] = components.weights
    folded[points] += components.weights_at_points
    parts = {
        "laplacian": graph.laplacian.data,
        "laplacian_indices": graph.laplacian.indices.astype(np.int64),
        "laplacian_indptr": graph.laplacian.indptr.astype(np.int64),
    }
    known = {"coordinates": prior.matrix @ folded - components.offset, "sigma": np.array([float(graph.sigma)])}
    return point_arrays(rows) | known | parts


@dataclass(frozen=True)
class KeptRows(RowKernel):
    """A kernel of rows of which only some are kept: `numbers` (b,) of the training rows, ascending."""

    numbers: Indices = field(default_factory=lambda: np.empty(0, np.intp))

    def within(self, points: Indices) -> Matrix:
        """(p, p), by the numbers of the training rows."""
        return super().within(self._places(points))

    def across(self, X: Any, *points: Indices) -> list[Matrix]:
        """(m, p) each."""
        return super().across(X, *map(self._places, points))

    def _places(self, points: Indices) -> Indices:
        return np.searchsorted(self.numbers, points)


def load_learner(run: RunStore) -> LogDetKernelLearner:
    """The fitted learner of a run, at the last gamma of its path; StoreError for parts that do not fit together."""
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
    components = Components(basis, found["weights"], found["weights_at_points"], found["offset"])
    learner._keep_kernel(prior, points, M, components)
    learner.n_features_in_ = trained_on(run)[1]
    learner.result_ = result_in(run, read_history(run))
    learner.certificate_ = LogDetCertificate(float(last["objective"]), float(last["bound"]))
    learner.n_iter_, learner.solver_, learner._path = int(last["n_iter"]), str(last["solver"]), report["outputs"]
    learner.method_ = str(last.get("method", ""))  # earlier runs do not tell it
    return learner


def settings_in(run: RunStore) -> LogDetRunSettings:
    """Those of a run, whose configuration has been looked at."""
    return LogDetRunSettings(**run.config["settings"])


def check_model(run: RunStore, found: dict[str, NDArray]) -> None:
    """StoreError for arrays that do not fit together, or numbers that are no rows of the data."""
    where = f"{run.path}/model"
    n, p = trained_on(run)[0], len(found["touched"])
    what = "a model whose parts do not fit together"
    check_lengths(run, "model", found, what, where, touched=p, other=p, sample=n, other_sample=n, one=1)
    for name in ("touched", "basis"):
        numbers = found[name]
        if not len(numbers) or numbers[0] < 0 or numbers[-1] >= n or (np.diff(numbers) <= 0).any():
            raise StoreError("not numbers of rows, ascending", where=f"{where}/{name}")
    if not np.isin(found["touched"], found["basis"]).all():
        raise StoreError(what, where=where)


def kept_kernel(settings: LogDetRunSettings, found: dict[str, NDArray]) -> Kernel:
    """The kernel of rows."""
    params = settings.kernel_params
    gamma = float(found["kernel_gamma"][0]) if "kernel_gamma" in found else None
    return Kernel(settings.kernel, gamma, params.get("degree", 3), params.get("coef0", 1))


def kept_graph(settings: LogDetRunSettings, found: dict[str, NDArray], where: str) -> Any:
    """What an extension takes of the graph: `sigma`, `n_neighbors`, `laplacian` (n, n) D - W; StoreError for a damaged one."""
    n = len(found["coordinates"])
    try:
        parts = (found["laplacian"], found["laplacian_indices"], found["laplacian_indptr"])
        laplacian = sp.csr_array(parts, shape=(n, n))
        laplacian.check_format(full_check=True)
    except (KeyError, ValueError, OverflowError, IndexError) as error:
        raise StoreError("a damaged graph", where=where, got=error) from error
    neighbors = max(1, min(settings.n_neighbors, n - 1))
    return SimpleNamespace(laplacian=laplacian, sigma=float(found["sigma"][0]), n_neighbors=neighbors)


def _prior(run: RunStore, settings: LogDetRunSettings, found: dict[str, NDArray]) -> PriorKernel:
    where = f"{run.path}/model"
    check_model(run, found)
    try:
        if settings.kernel == "precomputed":
            return GivenKernel(found["prior"])
        if settings.kernel == "laplacian":
            graph = kept_graph(settings, found, where)
            return GraphKernel(read_points(found, where), graph, settings.kernel_params.get("laplacian", "normalized"))
        rows = read_points(found, where)
    except KeyError as error:
        raise StoreError(f"no {error.args[0]} in it", where=where) from error
    if rows.shape != (len(found["basis"]), trained_on(run)[1]):
        raise StoreError("rows of another shape", where=where, got=rows.shape)
    return KeptRows(kept_kernel(settings, found), rows, found["basis"].astype(np.intp))

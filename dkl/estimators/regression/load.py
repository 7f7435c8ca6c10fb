"""Loading of the regressor from a run of kernel regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.base.run_arrays import columns_of, result_in
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.regression.learner import LowRankKernelRegressor
from dkl.estimators.regression.model import load_candidates, load_model
from dkl.estimators.regression.refit import Refit
from dkl.estimators.regression.settings import RegressionSettings
from dkl.solvers.regression.lasso_path import CrossValidation
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json


def load_regressor(run: RunStore) -> LowRankKernelRegressor:
    """Load the fitted regressor of a complete run, from its folder alone."""
    report, arrays, result = run.report(), run.read_arrays("model"), result_in(run)
    settings, candidates = run.config["settings"], load_candidates(run)
    found = remade(LowRankKernelRegressor, RegressionSettings, settings)
    if found.columns == "given":
        found.columns = candidates.indices if load_model(run).kernel.is_precomputed else candidates.points
    weights, targets = arrays["weights"], run.config.get("inputs", {}).get("targets", {}).get("shape", [0])
    found._is_flat = len(targets) == 1 and len(weights) == 1
    found._set_weights(candidates, weights, arrays["intercepts"])
    numbers = columns_of(report["outputs"], "objective", "gap", "relative_gap")
    for name, key in (("objective_", "objective"), ("duality_gap_", "gap"), ("relative_gap_", "relative_gap")):
        setattr(found, name, float(numbers[key][0]) if found._is_flat else numbers[key])
    found.weights_ = arrays["kernel_weights"][0] if found._is_flat else arrays["kernel_weights"]
    found.nu_, found.nu_max_ = float(report["nu"]), float(report["nu_max"])
    found.refit_ = _refit(report.get("refit"), arrays)
    found.scale_ = read_scale(run)
    found.cv_, found.run_path_ = _cross_validation(arrays, found.nu_), run.name
    found.result_, found.n_iter_ = result, result.n_iter
    is_precomputed = settings["kernel"] == "precomputed"
    shape = run.config.get("inputs", {}).get("data", {}).get("shape")
    found.n_features_in_ = int(shape[1]) if is_precomputed and shape else int(candidates.points.shape[-1])
    return found


def _cross_validation(arrays: dict[str, NDArray], nu: float) -> CrossValidation | None:
    if "cv_errors" not in arrays:
        return None
    best = int(np.argmin(np.abs(arrays["cv_nus"] - nu)))
    return CrossValidation(arrays["cv_nus"], arrays["cv_errors"], arrays["cv_active"], best)


def _refit(stored: Json | None, arrays: dict[str, NDArray]) -> Refit | None:
    """Restore the refit from a report; None if there was none, as in earlier reports."""
    if stored is None:
        return None
    of = columns_of(stored["outputs"], "objective", "gap")
    held = arrays["refit_lams"], arrays["refit_errors"], of["objective"], of["gap"]
    return Refit(str(stored["columns"]), float(stored["lam"]), *held)

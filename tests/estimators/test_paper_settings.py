"""`dkl.paper_settings`: parameters that every learner takes, and the fits that they give."""

from importlib import resources

import numpy as np
import pytest
from sklearn.base import clone

import dkl
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.settings import parameters
from dkl.estimators.logdet.settings import LogDetKernelSettings, LogDetMetricSettings
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.paper_settings import PAPERS, paper_settings
from dkl.estimators.qsdp.settings import PropagationSettings, UnfoldingSettings
from dkl.estimators.regression.settings import RegressionSettings
from dkl.estimators.svm.settings import SVCSettings
from dkl.solvers.watch import Outcome

SETTINGS = {
    "PairwiseKernelLearner": PairwiseSettings,
    "LowRankKernelRegressor": RegressionSettings,
    "OptimalNeighborhoodSVC": SVCSettings,
    "LogDetKernelLearner": LogDetKernelSettings,
    "LogDetMetricLearner": LogDetMetricSettings,
    "LaplacianKernelLearner": PropagationSettings,
    "MaximumVarianceUnfolding": UnfoldingSettings,
}


@pytest.fixture
def clouds(rng):
    """Rows of two classes and their labels."""
    y = np.arange(40) % 2
    return rng.standard_normal((40, 3)) + 2.0 * y[:, None], y


@pytest.mark.parametrize("name", PAPERS)
def test_they_are_parameters_of_the_learner_that_obey_its_rules(name):
    learner = getattr(dkl, name)
    found = paper_settings(learner)
    rules = parameters(SETTINGS[name])
    assert all(rules[key][1].accepts(value) for key, value in found.items())
    model = learner(**found)
    assert {key: model.get_params()[key] for key in found} == found
    assert clone(model).get_params() == learner().set_params(**found).get_params() == model.get_params()
    assert found == paper_settings(model) == paper_settings(name) is not found


def test_every_paper_has_one_and_nothing_else_has():
    assert set(SETTINGS) == set(PAPERS)
    for other in (dkl.KernelKMeans, dkl.KernelPCA(), "KernelPCA", 3):
        with pytest.raises(InputError, match="no learner of a paper"):
            paper_settings(other)


def test_a_returned_dictionary_is_the_callers_own():
    paper_settings(dkl.LogDetKernelLearner)["kernel_params"]["sigma"] = 1.0
    assert paper_settings(dkl.LogDetKernelLearner)["kernel_params"]["sigma"] == "average"


PAGES = {
    "PairwiseKernelLearner": ("kl-admm", 1),
    "LowRankKernelRegressor": ("slkl", 1),
    "OptimalNeighborhoodSVC": ("onk", 1),
    "LogDetKernelLearner": ("trin", 1),
    "LogDetMetricLearner": ("trin", 2),
    "LaplacianKernelLearner": ("sqlp", 1),
    "MaximumVarianceUnfolding": ("sqlp", 2),
}
"""Page of each learner, and the column of its values."""


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_show_the_same_values(name):
    page, column = PAGES[name]
    text = (resources.files("dkl") / "guide" / f"{page}.md").read_text(encoding="utf-8")
    table = text.partition("| parameter |")[2].partition("\n\n")[0]
    cells = [[cell.strip(" `") for cell in line.split("|")[1:]] for line in table.splitlines()[2:]]
    shown = {row[0]: row[column] for row in cells if row[column]}
    assert shown == {key: repr(value) for key, value in paper_settings(name).items()}


def fitted(name, X, y, **more):
    model = getattr(dkl, name)(**{**paper_settings(name), "n_jobs": 1, "random_state": 0, **more})
    return model.fit(X, y)


@pytest.mark.filterwarnings("ignore:not converged")
def test_pairs_are_learned_by_algorithm_1_and_k_is_u_u(clouds):
    model = fitted("PairwiseKernelLearner", *clouds, max_iter=30, laplacian="unnormalized")
    rows = list(model.result_.history)
    assert model.solver_ == "admm" and len(rows) == 30
    # The objective of U U' itself, not of its best multiple.
    assert model.certificate_.objective == pytest.approx(rows[-1]["objective"], rel=1e-9)
    for before, row in zip(rows, rows[1:], strict=False):
        primal, dual, rho = before["primal_residual"], before["dual_residual"], before["rho_used"]
        after = 2 * rho if primal > 10 * dual else max(rho / 2, 10) if dual > 10 * primal else rho
        assert row["rho_used"] == after


def test_the_papers_rules_of_pairs_are_refused_of_another_solver(clouds):
    for more in ({"stopping": "paper"}, {"adapt_rho": "paper"}):
        with pytest.raises(InputError, match="Algorithm 1"):
            dkl.PairwiseKernelLearner(**more).fit(*clouds)


@pytest.mark.filterwarnings("ignore:not converged")
def test_regression_is_algorithm_2(clouds, rng):
    X, _ = clouds
    y = np.sin(X[:, 0])
    model = fitted("LowRankKernelRegressor", X, y, nu=0.05)
    best = dkl.LowRankKernelRegressor(nu=0.05, fit_intercept=False, refit="never", holdout=0, n_jobs=1).fit(X, y)
    assert model.n_iter_ % 40 == 0 and model.n_iter_ > 40
    assert best.objective_ <= model.objective_ * (1 + 1e-9) and model.objective_ < 1.05 * best.objective_
    if model.relative_gap_ > 1e-4:
        assert model.result_.outcome is Outcome.STATIONARY and "proves nothing" in model.result_.remedy
    with pytest.warns(ConvergenceWarning, match="stationary"):
        printed = fitted("LowRankKernelRegressor", X, y, nu=0.05, solver="printed")
    assert printed.n_iter_ == 40


@pytest.mark.filterwarnings("ignore:not converged")
def test_the_classifier_is_algorithm_2_with_its_stop(clouds):
    model = fitted("OptimalNeighborhoodSVC", *clouds, tol=1e-8)
    best = dkl.OptimalNeighborhoodSVC(rho=100.0, tol=1e-10, standardize=False, holdout=0, n_jobs=1).fit(*clouds)
    assert model.objective_ == pytest.approx(best.objective_, rel=1e-6)
    early = fitted("OptimalNeighborhoodSVC", *clouds, tol=1e-2)
    assert early.n_iter_ < model.n_iter_
    assert early.result_.outcome is (Outcome.SOLVED if early.relative_gap_[0] <= 1e-2 else Outcome.STATIONARY)


@pytest.mark.parametrize("more", [{"solver": "accelerated"}, {"dtype": "float32"}, {"kernel": ["rbf", "linear"]}])
def test_the_papers_stop_of_the_classifier_is_refused_of_what_is_not_its_own(more, clouds):
    with pytest.raises(InputError, match="stopping"):
        fitted("OptimalNeighborhoodSVC", *clouds, **more)


@pytest.mark.filterwarnings("ignore:not converged")
def test_kernels_and_metrics_are_learned_by_the_printed_trust_region(clouds):
    X, y = clouds
    kernel = fitted("LogDetKernelLearner", X, np.where(np.arange(40) < 20, y, -1), tol=1e-5, gamma=4.0)
    assert (kernel.solver_, kernel.method_) == ("paper", "primal") and kernel.certificate_.relative_gap < 1e-4
    metric = fitted("LogDetMetricLearner", X, y, tol=1e-4, gamma=0.1)
    assert (metric.solver_, metric.method_) == ("paper", "primal") and metric.certificate_.relative_gap < 1e-3
    with pytest.raises(InputError, match="second derivatives"):
        fitted("LogDetKernelLearner", X, y, loss="hinge")


@pytest.mark.parametrize("name", ["LaplacianKernelLearner", "MaximumVarianceUnfolding"])
def test_smooth_kernels_are_learned_by_sqlp(name, clouds):
    X, y = clouds
    model = fitted(name, X, y, n_basis=5) if name == "LaplacianKernelLearner" else fitted(name, X, None, n_basis=5)
    assert model.result_.outcome is Outcome.SOLVED and model.certificate_.relative_gap <= 1e-8

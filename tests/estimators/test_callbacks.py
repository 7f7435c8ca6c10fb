"""Callbacks, verbose and outcomes mean the same in every learner."""

import functools
import logging
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from clock_checks import check_seconds
from repeats import but_for
from sklearn.base import clone
from sklearn.datasets import make_blobs

import dkl
from dkl import (
    LaplacianKernelLearner,
    LogDetKernelLearner,
    LogDetMetricLearner,
    LowRankKernelRegressor,
    MaximumVarianceUnfolding,
    OptimalNeighborhoodSVC,
    PairwiseKernelLearner,
)
from dkl.errors import ConvergenceWarning, DataWarning, InputError
from dkl.estimators.base.progress import Progress, describe, duration, progress
from dkl.estimators.kmeans.learner import REMEDIES as KMEANS_REMEDIES
from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.estimators.pairwise.arrays import history
from dkl.estimators.pairwise.stages import FACTORED_REMEDIES
from dkl.estimators.pairwise.stages import REMEDIES as PAIRWISE_REMEDIES
from dkl.estimators.regression.fit import REMEDIES as REGRESSION_REMEDIES
from dkl.estimators.svm.fit import REMEDIES as SVC_REMEDIES
from dkl.solvers.svm import working_set as svm_start
from dkl.solvers.watch import Outcome
from dkl.stores.run import RunStore

X, NUMBERS = make_blobs(150, 4, centers=3, cluster_std=3.0, random_state=3)
TARGETS = np.sin(X[:, 0]) + 0.1 * NUMBERS

LEARNERS = {
    "admm": (PairwiseKernelLearner(rank=6, tol=1e-2, target_gap=None, random_state=0, n_jobs=1), NUMBERS),
    "finish": (PairwiseKernelLearner(rank=6, max_iter=6, target_gap=1e-4, random_state=0, n_jobs=1), NUMBERS),
    "finish in single": (
        PairwiseKernelLearner(rank=6, max_iter=6, target_gap=1e-4, dtype="float32", random_state=0, n_jobs=1),
        NUMBERS,
    ),
    "factored": (
        PairwiseKernelLearner(solver="factored", tol=1e-4, target_gap=None, random_state=0, n_jobs=1),
        NUMBERS,
    ),
    "regression": (LowRankKernelRegressor(n_columns=30, nu=1e-3, random_state=0, n_jobs=1), TARGETS),
    "regression by folds": (LowRankKernelRegressor(n_columns=30, random_state=0, n_jobs=1), TARGETS),
    "svc": (OptimalNeighborhoodSVC(n_jobs=1), NUMBERS),
    "svc in single": (OptimalNeighborhoodSVC(dtype="float32", n_jobs=1), NUMBERS),
    "svc of several": (OptimalNeighborhoodSVC(kernel=["rbf", "linear"], tol=1e-4, n_jobs=1), NUMBERS),
    "svc by gradients": (OptimalNeighborhoodSVC(solver="gradient", tol=1e-3, multi_class="ovr", n_jobs=1), NUMBERS),
    "kmeans": (KernelKMeans(6, random_state=0), None),
    "logdet": (LogDetKernelLearner(100.0, n_in=3, n_out=3, n_jobs=1), NUMBERS),
    "metric": (LogDetMetricLearner(100.0, loss="log", n_in=3, n_out=3), NUMBERS),
    "laplacian": (LaplacianKernelLearner(60, tol=1e-8, random_state=0, n_jobs=1), NUMBERS),
    "mvu": (MaximumVarianceUnfolding(n_basis=60, n_neighbors=20, tol=1e-8, n_jobs=1), None),
}
FURTHER = ["finish in single", "regression by folds", "svc in single", "svc of several", "metric", "laplacian", "mvu"]
STAGES = {
    "admm": ["admm"],
    "finish": ["admm", "finish"],
    "finish in single": ["admm", "finish"],
    "factored": ["factored"],
    "regression": ["pass", "solve"],
    "regression by folds": ["pass", "cv", "refit", "solve"],
    "svc by gradients": [f"machine {k} of 3" for k in (1, 2, 3)],
    "kmeans": ["k-means++", "k-means"],
    "logdet": ["solve"],
    "metric": ["solve"],
    "laplacian": ["solve"],
    "mvu": ["solve"],
}


@pytest.fixture(params=but_for(FURTHER, LEARNERS))
def case(request):
    """(its name, the learner, its targets)."""
    learner, y = LEARNERS[request.param]
    return request.param, clone(learner), y


def fitted(learner, y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(learner).set_params(**parameters).fit(X, y)


@functools.cache
def whole(name):
    """The undisturbed fit of a case."""
    return fitted(*LEARNERS[name])


@functools.cache
def least():
    """The least objective of the pairs that the labels make, whatever the method."""
    model = PairwiseKernelLearner(solver="factored", target_gap=1e-7, random_state=0)
    return model.fit(X, NUMBERS).certificate_.objective


def numbers(model):
    """What a model says of the rows."""
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


def test_callbacks_see_the_history_row_by_row_and_change_nothing(case):
    name, learner, y = case
    seen = []
    model = fitted(learner, y, callbacks=[seen.append, lambda row: "no truth"])
    assert seen == model.result_.history and len(seen) > 3
    stages = list(dict.fromkeys(row["stage"] for row in seen))
    assert stages == STAGES.get(name, stages)
    seconds = [row["seconds"] for row in seen]
    assert seconds == sorted(seconds) and seconds[0] >= 0
    check_seconds(model.result_.seconds, seen)
    assert all(1 <= row["iteration"] <= row["of"] for row in seen if "of" in row)
    np.testing.assert_array_equal(numbers(model), numbers(whole(name)))


RESULTS = {
    "kpca": lambda: dkl.KernelPCA(2, n_jobs=1).fit(X).result_,
    "kpca of a factor": lambda: dkl.KernelPCA(2, kernel="linear", n_jobs=1).fit(X).result_,
    "embedding": lambda: dkl.SpectralEmbedding(2, n_jobs=1).fit(X).result_,
    "clustering": lambda: dkl.SpectralClustering(3, n_jobs=1).fit(X).kmeans_.result_,
    "svc path": lambda: OptimalNeighborhoodSVC(n_jobs=1).path(X, NUMBERS, [1.0, 10.0]).model(1, 0).result_,
    "regression path": lambda: LowRankKernelRegressor(n_columns=30, n_jobs=1).path(X, TARGETS).result,
    "logdet path": lambda: LogDetMetricLearner(n_jobs=1).path(X, NUMBERS, [1.0, 10.0]).model(1).result_,
}


@pytest.mark.parametrize(
    "result",
    but_for(
        ["kpca of a factor", "svc path"],
        RESULTS,
    ),
)
def test_seconds_of_what_has_no_callbacks_or_many_models_are_by_one_clock(result):
    found = RESULTS[result]()
    check_seconds(found.seconds, found.history)


@pytest.mark.parametrize("share", but_for([0.0, 0.8], [0.0, 0.4, 0.8]))
def test_true_stops_with_the_result_so_far_and_no_warning(case, share):
    name, learner, y = case
    count = len(whole(name).result_.history)
    seen, at = [], 1 + int(share * (count - 1))

    def stop(row):
        seen.append(row)
        return len(seen) == at

    model = clone(learner).set_params(callbacks=stop).fit(X, y)  # warnings are errors
    result = model.result_
    assert seen == result.history and len(seen) == at
    if share > 0 and isinstance(model, PairwiseKernelLearner) and result.outcome is Outcome.SOLVED:
        # So late in a fit the certificate of what a stop leaves may prove the goal already.
        assert model.certificate_.relative_gap <= (learner.target_gap or learner.tol)
    else:
        assert result.outcome is Outcome.STOPPED
        assert result.message == "stopped_by_callback: a callback asked for the end"
    assert np.isfinite(numbers(model).astype(float)).all()
    if isinstance(model, PairwiseKernelLearner):
        best = least()
        assert -1e-6 * best <= model.certificate_.objective - best <= model.certificate_.gap < np.inf
    elif hasattr(model, "certificate_"):
        best = clone(learner).set_params(tol=1e-9).fit(X, y).certificate_.objective
        slack = 1e-8 * abs(best)
        assert -slack <= model.certificate_.objective - best <= model.certificate_.gap + slack
    elif not isinstance(model, KernelKMeans):
        best = np.atleast_1d(clone(learner).set_params(tol=1e-6).fit(X, y).objective_)
        if name == "regression by folds":  # at another nu
            with warnings.catch_warnings():
                # A stop at the first row leaves the first nu: rounding decides on which side of nu_max, from which a fit warns.
                warnings.simplefilter("ignore", DataWarning)
                again = LowRankKernelRegressor(n_columns=30, nu=model.nu_, random_state=0).fit(X, y)
            best = np.atleast_1d(again.objective_)
        if name != "svc of several":
            missing = np.atleast_1d(model.objective_) - best
            gaps = np.atleast_1d(model.duality_gap_)
            assert (missing <= gaps * (1 + 1e-9) + 1e-6 * np.abs(best)).all()
        assert (np.atleast_1d(model.relative_gap_) >= 0).all()


def test_machines_that_were_not_begun_are_zero(monkeypatch):
    monkeypatch.setattr(svm_start, "MAX_ROWS", 0)  # a machine of few rows is solved before its tenth step
    learner, y = LEARNERS["svc"]
    model = clone(learner).set_params(callbacks=lambda row: row["stage"] == "machine 2 of 3" and row["iteration"] >= 10)
    model.fit(X, y)
    assert model.dual_coef_[0].any() and model.dual_coef_[1].any() and not model.dual_coef_[2].any()
    assert model.relative_gap_[0] <= 1e-6 and np.isinf(model.relative_gap_[2])
    assert {row["machine"] for row in model.result_.history} == {0, 1}


def test_a_stopped_path_of_machines_has_all_models():
    seen = []

    def stop(row):
        seen.append(row)
        return row["stage"] == "machine 1 of 3, model 2"

    learner, y = LEARNERS["svc"]
    path = clone(learner).set_params(callbacks=stop).path(X, y, [0.1, 1.0, 10.0], [1.0, 100.0])
    assert path.result.outcome is Outcome.STOPPED and seen == path.result.history
    for i, j in np.ndindex(3, 2):
        model = path.model(i, j)
        assert len(model.predict(X)) == len(X) and model.result_.outcome in (Outcome.STOPPED, Outcome.SOLVED)
    whole = clone(learner).path(X, y, [0.1, 1.0, 10.0], [1.0, 100.0])
    assert whole.result.outcome is Outcome.SOLVED
    finite = np.isfinite(path.gaps)
    missing, claimed = (path.objectives - whole.objectives)[finite], path.gaps[finite] * -path.objectives[finite]
    assert (missing <= claimed * (1 + 1e-9) + 1e-6).all() and not (~finite).all()
    assert (path.objectives[~finite] >= 0).all()


@pytest.mark.parametrize("callbacks", [3, "print", [print, 1]])
def test_callbacks_are_functions(case, callbacks):
    _, learner, y = case
    with pytest.raises(InputError, match="callbacks"):
        clone(learner).set_params(callbacks=callbacks).fit(X, y)


def test_an_error_in_a_callback_is_the_users(case):
    _, learner, y = case

    def fail(row):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        clone(learner).set_params(callbacks=fail).fit(X, y)


@pytest.mark.parametrize("name", ["admm", "finish", "factored"])
def test_a_run_logs_every_row(name, tmp_path):
    learner, y = LEARNERS[name]
    model = fitted(learner, y, work_dir=tmp_path)
    rows = [event for event in RunStore.open(model.run_path_).events() if event["event"] == "iteration"]
    assert [row["iteration"] for row in rows] == list(range(1, model.n_iter_ + 1))
    for kept, row in zip(rows, model.result_.history, strict=True):
        assert kept["objective"] == row["objective"]
        assert kept.get("stage", "admm") == row["stage"]


def test_a_resumed_run_has_the_rows_of_what_led_to_its_result(tmp_path):
    """More iterations of ADMM are followed by fewer of the finish: the first attempt's beyond them are void."""
    learner, y = LEARNERS["finish"]
    model = fitted(learner, y, work_dir=tmp_path, target_gap=1e-6)
    (Path(model.run_path_) / "report.json").unlink()
    dkl.resume(model.run_path_, max_iter=7, target_gap=0.9, n_jobs=1)
    run = RunStore.open(model.run_path_)
    rows = history(run)
    assert [row["iteration"] for row in rows] == list(range(1, run.report()["n_iter"] + 1))
    assert [row.get("stage", "admm") for row in rows] == ["admm"] * 7 + ["finish"] * (len(rows) - 7)
    assert len(rows) < model.n_iter_, "or nothing had to go"


# -- remedies -----------------------------------------------------------------------------------------------------------


REMEDIES = {
    "admm": PAIRWISE_REMEDIES,
    "factored": FACTORED_REMEDIES,
    "regression": REGRESSION_REMEDIES,
    "svc": SVC_REMEDIES,
    "kmeans": KMEANS_REMEDIES,
}


@pytest.mark.parametrize("name", REMEDIES)
def test_remedies_name_only_parameters_of_their_learner(name):
    own = set(LEARNERS[name][0].get_params())
    known = {parameter for learner, _ in LEARNERS.values() for parameter in learner.get_params()}
    assert set(REMEDIES[name]) == set(Outcome)
    for outcome, text in REMEDIES[name].items():
        assert bool(text) == (outcome is not Outcome.SOLVED)
        words = set(re.findall(r"\w+", text))
        assert not (words & known) - own, (outcome, text)


def test_what_did_not_converge_says_its_remedy(case):
    name, learner, y = case
    if name == "regression by folds":
        pytest.skip("looks only at nus that can be solved")
    if name == "kmeans":
        learner.set_params(max_iter=1)
    elif name.startswith("finish"):
        learner.set_params(max_iter=1, target_gap=1e-12)
    else:
        learner.set_params(max_iter=2, tol=1e-12)
    if name == "factored":  # else it starts from a kernel that may be near enough
        learner.set_params(holdout=0)
    with pytest.warns(ConvergenceWarning, match=r"not converged \(.*max_iter") as caught:
        model = learner.fit(X, y)
    assert model.result_.outcome is Outcome.ITERATION_LIMIT and "max_iter" in model.result_.remedy
    assert caught[0].filename == __file__


# -- progress -----------------------------------------------------------------------------------------------------------


def test_verbose_shows_where_it_stands(case, capsys):
    name, learner, y = case
    model = fitted(learner, y, verbose=1)
    told = capsys.readouterr()
    last = model.result_.history[-1]
    lines = told.err.splitlines()
    assert lines[-1].startswith(f"{last['stage']} {last['iteration']}") and lines[-1].endswith(" s")
    assert lines[0].startswith(model.result_.history[0]["stage"]) and told.out == ""
    fitted(learner, y)
    assert capsys.readouterr().err == ""


def test_the_log_has_the_same_lines(caplog, capsys):
    learner, y = LEARNERS["regression by folds"]
    with caplog.at_level(logging.INFO, logger="dkl"):
        fitted(learner, y, verbose=1)
        lines = capsys.readouterr().err.splitlines()
        assert [record.getMessage() for record in caplog.records] == lines and len(lines) >= 3
        caplog.clear()
        fitted(learner, y)  # nobody looks but the log
        assert capsys.readouterr().err == "" and len(caplog.records) >= 3
    assert {record.name for record in caplog.records} == {"dkl"}
    caplog.clear()
    fitted(learner, y)
    assert not caplog.records and not logging.getLogger("dkl").handlers


def test_the_time_that_is_left():
    assert progress(False) == []
    show = Progress()
    for row in ({"stage": "pass", "iteration": 1, "of": 5, "seconds": 2.0},):
        show(row)
    assert show._left({"stage": "pass", "iteration": 3, "of": 5, "seconds": 6.0}) == pytest.approx(4.0)
    assert show._left({"stage": "pass", "iteration": 5, "of": 5, "seconds": 9.0}) is None
    assert show._left({"stage": "solve", "iteration": 7, "seconds": 9.0}) is None
    assert show._left({"stage": "machine 3 of 4", "iteration": 7, "seconds": 10.0, "share": 0.5}) == pytest.approx(10.0)
    assert show._left({"stage": "machine 1 of 4", "iteration": 7, "seconds": 10.0, "share": 0.0}) is None


def test_rows_in_words():
    row = {"stage": "cv", "iteration": 3, "of": 60, "nu": 0.25, "error": 1.5, "relative_gap": None, "seconds": 75.0}
    assert describe(row) == "cv 3/60  nu 0.25  error 1.5  1 min 15 s"
    assert describe({"iteration": 7}) == "iteration 7  0.0 s"
    assert [duration(seconds) for seconds in (0.04, 59.94, 60.0, 3599.7, 7500.0)] == [
        "0.0 s", "59.9 s", "1 min 0 s", "1 h 0 min", "2 h 5 min",
    ]  # fmt: skip


def test_lines_come_now_and_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("dkl.estimators.base.progress.time.monotonic", lambda: now[0])
    show = Progress()
    for iteration in range(1, 41):
        now[0] += 0.5
        show({"stage": "solve", "iteration": iteration, "seconds": now[0]})
    show.close()
    lines = capsys.readouterr().err.splitlines()
    assert [int(line.split()[1]) for line in lines] == [1, 11, 21, 31, 40]


def test_a_terminal_is_followed_live(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    learner, y = LEARNERS["regression by folds"]
    fitted(learner, y, verbose=1)
    told = capsys.readouterr().err
    assert "pass 1/1" in told and "solve" in told
    seen = []

    def stop(row):
        seen.append(row)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fitted(learner, y, verbose=1, callbacks=stop)
    assert len(seen) == 1

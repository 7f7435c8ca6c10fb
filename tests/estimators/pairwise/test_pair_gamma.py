"""gamma="cv" of pairs: what it chooses, what becomes of wrong pairs, and runs that are stopped, killed, verified and drawn."""

import re
import shutil

import numpy as np
import pytest
from command_line import call, factor_bytes

import dkl
from dkl.errors import InputError, InterruptedRunError, MemoryBudgetError
from dkl.estimators.pairwise import choice
from dkl.estimators.pairwise.plan import check_room
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.solvers.pairwise.gamma_path import MARGIN, FoldPath, GammaChoice
from dkl.solvers.watch import Outcome
from dkl.stores.run import RunStore

N, FOLDS = 60, 2
SETTINGS = {"gamma": "cv", "cv": FOLDS, "n_gammas": 4, "solver": "factored", "random_state": 0, "n_jobs": 1}


def clusters(wrong=0.0, n=N):
    """(X, labels, pairs), of which a share is wrong."""
    rng = np.random.default_rng(1)
    y = np.arange(n) % 3
    X = rng.standard_normal((n, 4)) + 2.5 * np.eye(4)[y]
    ends = rng.permutation(n)[: 2 * (n // 2)].reshape(-1, 2)
    ends = np.concatenate([ends, rng.permutation(n)[: 2 * (n // 2)].reshape(-1, 2)])
    alike = (y[ends[:, 0]] == y[ends[:, 1]]) ^ (rng.random(len(ends)) < wrong)
    return X, y, dkl.Pairs(ends[alike], ends[~alike]).check(n, "drop")


def bytes_of(model):
    return np.ascontiguousarray(model.factor_).tobytes()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """(X, pairs, a learner that was fitted with a run's folder)."""
    X, _, pairs = clusters(0.15)
    return X, pairs, dkl.PairwiseKernelLearner(**SETTINGS, work_dir=tmp_path_factory.mktemp("kept")).fit(X, pairs=pairs)


def test_the_likeliest_is_chosen_and_the_fit_is_proven_there(kept):
    X, pairs, model = kept
    cv = model.cv_
    assert cv.scores.shape == cv.cosines.shape == (len(cv.gammas), len(pairs.i))
    assert cv.ranks.shape == (len(cv.gammas), FOLDS)
    assert model.gamma_ == cv.gamma == cv.gammas[cv.best] and cv.log_likelihood.argmax() == cv.best
    assert model.result_.outcome is Outcome.SOLVED and model.result_.seconds["cv"] > 0
    fixed = dkl.PairwiseKernelLearner(**{**SETTINGS, "gamma": model.gamma_, "wrong_pairs": "trust"}).fit(X, pairs=pairs)
    assert fixed.cv_ is None and fixed.gamma_ == model.gamma_
    apart = abs(fixed.certificate_.objective - model.certificate_.objective)
    assert apart <= max(fixed.certificate_.gap, model.certificate_.gap)
    rows = [row for row in model.result_.history if row["stage"] == "cv"]
    assert rows == model.result_.history[: len(rows)] and len(rows) == FOLDS * len(cv.gammas)


def test_wrong_pairs_are_trusted_less_and_clusters_are_the_better_for_it():
    chosen, better = [], []
    for wrong in (0.0, 0.2):
        X, y, pairs = clusters(wrong, 90)
        model = dkl.PairwiseKernelLearner(**SETTINGS).fit(X, pairs=pairs)
        fixed = dkl.PairwiseKernelLearner(**{**SETTINGS, "gamma": 100.0}).fit(X, pairs=pairs)
        indices = [
            dkl.adjusted_rand_index(y, dkl.KernelKMeans(3, n_init=4, random_state=0).fit_predict(one.factor_))
            for one in (model, fixed)
        ]
        chosen.append(model.gamma_)
        better.append(indices[0] - indices[1])
    assert chosen[1] < chosen[0] and better[1] > 0.1 and better[0] > -0.05


def test_the_last_gamma_is_chosen_unless_another_is_likelier_by_the_margin():
    def choice(*likely):
        k = len(likely)
        empty = np.empty((k, 0))
        return GammaChoice(
            np.geomspace(1, 100, k),
            empty,
            empty,
            np.full((k, 3), np.nan),
            np.array(likely),
            np.empty((k, 0), int),
            empty,
        )

    assert choice(-20.0, -10.0 + 0.9 * MARGIN, -10.0).best == 2
    assert choice(-20.0, -10.0 + 1.1 * MARGIN, -10.0).best == 1
    assert choice(-9.0, -5.0, np.nan).best == 1 and not choice(-9.0, -5.0, np.nan).is_whole
    assert choice(np.nan, np.nan, np.nan).best == 2
    assert choice(-3.0, -3.0, -9.0).best == 0


def test_scores_stand_where_their_pairs_do():
    held_out = [np.array([True, False, True, False]), np.array([False, True, False, True])]
    paths = [
        FoldPath(None, [np.array([0.9, 0.1]), np.array([0.8, 0.2])], [np.ones(2)] * 2, [3, 4], [1.0, 3.0]),
        FoldPath(None, [np.array([0.7, 0.3])], [np.zeros(2)], [5], [2.0]),
    ]
    found = GammaChoice.of(np.array([1.0, 10.0, 100.0]), paths, held_out, np.array([1, 1, 0, 0], bool), np.ones(4))
    assert found.scores[0].tolist() == [0.9, 0.7, 0.1, 0.3] and found.cosines[0].tolist() == [1, 0, 1, 0]
    assert np.isnan(found.scores[1]).tolist() == [False, True, False, True] and np.isnan(found.scores[2]).all()
    assert np.isnan(found.log_likelihood).tolist() == [False, True, True]
    assert found.ranks.tolist() == [[3, 5], [4, -1], [-1, -1]]
    assert [(row["fold"], row["gamma"], row["rank"]) for row in found.rows] == [(0, 1.0, 3), (1, 1.0, 5), (0, 10.0, 4)]


@pytest.mark.parametrize("last", [1, 2 * FOLDS + 1])
def test_a_callback_ends_the_choice(last):
    X, _, pairs = clusters()
    seen = []
    stopped = dkl.PairwiseKernelLearner(**SETTINGS, callbacks=lambda row: seen.append(row) or len(seen) == last)
    stopped.fit(X, pairs=pairs)
    assert stopped.result_.outcome is Outcome.STOPPED and seen == stopped.result_.history[:last]
    whole = np.count_nonzero(~np.isnan(stopped.cv_.log_likelihood))
    assert whole == last // FOLDS and stopped.gamma_ == stopped.cv_.gammas[stopped.cv_.best]


def test_a_cluster_chooses_the_same_by_the_same_bytes(kept, client):
    X, pairs, model = kept
    there = dkl.PairwiseKernelLearner(**{**SETTINGS, "n_jobs": None}, client=client).fit(X, pairs=pairs)
    assert np.array_equal(there.cv_.scores, model.cv_.scores, equal_nan=True) and bytes_of(there) == bytes_of(model)


@pytest.mark.exhaustive
def test_labels_of_a_few_rows_are_enough():
    """All pairs of theirs are given, so that rows are held out: and a float32 factor by ADMM of the other Laplacian."""
    X, y, _ = clusters()
    settings = {**SETTINGS, "solver": "admm", "laplacian": "unnormalized", "dtype": "float32"}
    model = dkl.PairwiseKernelLearner(**settings).fit(X, np.where(np.arange(N) < 18, y, -1))
    assert model.factor_.dtype == np.float32 and model.result_.outcome is Outcome.SOLVED
    scale = model.graph_.laplacian.diagonal().max()
    assert model.cv_.gammas[0] == pytest.approx(scale, rel=1e-12)
    with pytest.raises(InputError, match="too few cannot-links to hold some out"):
        dkl.PairwiseKernelLearner(**settings).fit(X, must_link=[[0, 3], [6, 9], [12, 15]])


class Leave:
    """A callback that ends the run at a row, for it to be resumed, or as a crash would."""

    def __init__(self, at, crash):
        self.at, self.comes_back, self.crash, self.seen = at, not crash, crash, 0

    def __call__(self, row):
        self.seen += 1
        if self.crash and self.seen == self.at:
            raise ZeroDivisionError
        return self.seen == self.at


@pytest.mark.parametrize(("at", "crash"), [(1, False), (2 * FOLDS + 2, True)])
def test_a_run_that_is_left_in_the_choice_ends_in_the_same_bytes(kept, tmp_path, at, crash):
    X, pairs, model = kept
    left = dkl.PairwiseKernelLearner(**SETTINGS, work_dir=tmp_path, callbacks=Leave(at, crash))
    with pytest.raises(ZeroDivisionError if crash else InterruptedRunError):
        left.fit(X, pairs=pairs)
    (run,) = tmp_path.iterdir()
    seen = []
    resumed = dkl.resume(run, n_jobs=1, callbacks=lambda row: seen.append(row))
    assert bytes_of(resumed) == bytes_of(model) and np.array_equal(resumed.cv_.scores, model.cv_.scores, equal_nan=True)
    assert len(seen) == len(model.result_.history) - at + crash  # of the kernel under way, and no more
    plain = [[{**row, "seconds": 0} for row in one.result_.history] for one in (resumed, model)]
    assert plain[0] == plain[1]
    assert not (run / "folds").exists()


def test_loaded_verified_shown_and_drawn(kept, tmp_path):
    _, _, model = kept
    loaded = dkl.load(model.run_path_)
    assert loaded.gamma == "cv" and loaded.gamma_ == model.gamma_ and loaded.result_.history == model.result_.history
    assert np.array_equal(loaded.cv_.scores, model.cv_.scores, equal_nan=True)
    told = call("info", model.run_path_)
    assert told.code == 0 and "by 2 folds of the pairs" in told.out and "  chosen\n" in told.out
    assert call("verify", model.run_path_).code == 0
    titles = [axis.get_title() for axis in loaded.plot().axes]
    assert "pairs held out" in titles
    changed = shutil.copytree(model.run_path_, tmp_path / "changed.zarr")
    store = RunStore.open(changed)
    arrays = store.read_arrays("choice")
    arrays["log_likelihood"][(loaded.cv_.best + 1) % len(loaded.cv_.gammas)] = 0.0
    store.write_arrays("choice", arrays)
    answer = call("verify", changed)
    assert answer.code == 6


def test_the_command_is_the_estimator(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _, pairs = clusters(0.15)
    np.savez("X.npz", X=X)
    np.savez("pairs.npz", must_link=pairs.must_link, cannot_link=pairs.cannot_link)
    files = ("--data", "X.npz", "--pairs", "pairs.npz", "--out", "run.zarr")
    options = ("--gamma", "cv", "--cv", 3, "--n-gammas", 2, "--solver", "factored", "--threads", 1)
    plan = call("plan", "pairwise", *files, *options)
    assert plan.code == 0 and "2 kernels in each of 3 folds, to loose gaps; gamma 1, 100\n" in plan.out
    largest = call("plan", "pairwise", *files, "--gamma", 100, *options[2:])
    (needs,) = re.findall(r"at the largest, 100, a process takes (.*)\n", plan.out)
    assert largest.code == 0 and needs in largest.out
    answer = call("fit", "pairwise", "--no-picture", *files, *options)
    assert answer.code == 0, answer.err
    model = dkl.load("run.zarr")
    assert model.cv_.ranks.shape == (2, 3) and factor_bytes(tmp_path / "run.zarr")
    again = call("resume", "run.zarr")
    assert again.code == 0 and "nothing to do" in again.out


def test_bad_input_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _, pairs = clusters()
    few = dkl.Pairs(pairs.must_link[:1], pairs.cannot_link)
    monkeypatch.setattr(choice, "fit_problem", None)
    with pytest.raises(InputError, match="gamma='cv'.*: too few must-links to hold some out"):
        dkl.PairwiseKernelLearner(**SETTINGS, work_dir=tmp_path).fit(X, pairs=few)
    with pytest.raises(MemoryBudgetError, match="gamma='cv'.*: the folds' kernels.*lower cv"):
        check_room(10**6, 2 * 10**7, 10**6, PairwiseSettings(gamma="cv", memory_limit=2 * 10**9))
    with pytest.raises(InputError, match="'gamma' parameter of PairwiseKernelLearner must be .*'cv'; got 'best'"):
        dkl.PairwiseKernelLearner(gamma="best").fit(X, pairs=pairs)
    np.savez("X.npz", X=X)
    np.savez("pairs.npz", must_link=few.must_link, cannot_link=few.cannot_link)
    answer = call("fit", "pairwise", "--data", "X.npz", "--pairs", "pairs.npz", "--out", "run.zarr", "--gamma", "cv")
    assert answer.code == 2 and "too few must-links" in answer.err and not (tmp_path / "run.zarr").exists()

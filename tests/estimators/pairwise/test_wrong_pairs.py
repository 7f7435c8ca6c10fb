"""Pairs of which some are wrong: found by pairs held out, trusted less, shown; right ones change nothing."""

import json
import re
import shutil
import warnings

import numpy as np
import pytest
from command_line import call
from repeats import but_for
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.errors import DataWarning, InputError, InterruptedRunError
from dkl.estimators.pairwise.store import WrongPairs
from dkl.stores.run import RunStore

CV = {"random_state": 0, "n_jobs": 1, "holdout": 0}


def noisy(y, count, share, seed=0):
    """(pairs, flags of those that are wrong in the order of the checked pairs): half of either kind before."""
    drawn = dkl.Pairs.from_labels(y, count // 2, count // 2, random_state=seed)
    must = (drawn.sign > 0) ^ (np.random.default_rng(seed).random(count) < share)
    ends = np.stack([drawn.i, drawn.j], axis=1)
    pairs = dkl.Pairs(ends[must], ends[~must])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        checked = pairs.check(len(y), "keep")
    return checked, (y[checked.i] == y[checked.j]) != (checked.sign > 0)


def index_of(y, model):
    found = dkl.KernelKMeans(len(np.unique(y)), n_init=4, random_state=0).fit_predict(model.factor_)
    return dkl.adjusted_rand_index(y, found)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def found(iris, tmp_path_factory):
    """(X, y, checked pairs, which are wrong, a learner that was fitted with a run's folder)."""
    X, y = iris
    pairs, wrong = noisy(y, 300, 0.15)
    with pytest.warns(DataWarning):
        model = dkl.PairwiseKernelLearner(**CV, work_dir=tmp_path_factory.mktemp("found")).fit(X, pairs=pairs)
    return X, y, pairs, wrong, model


def test_planted_pairs_look_wrong_and_are_trusted_less(found):
    X, y, pairs, wrong, model = found
    told = model.result_.wrong_pairs
    assert isinstance(told, WrongPairs) and told.pairs == pairs and told.contradictions > 0
    assert roc_auc_score(wrong, told.probability) > 0.9 and wrong[told.flagged].mean() > 0.6
    assert told.share == pytest.approx(wrong.mean(), abs=0.06)
    assert model.gamma_ < 100.0 and told.gammas.tolist() == [1.0, 10.0, 100.0]
    assert told.log_likelihood.argmax() == model.cv_.best < 2
    text = str(told)
    assert "look wrong" in text and "are wrong" not in text and f"{told.flagged.sum()} flagged" in text
    # The fit is that of the weights, by a learner that is given these.
    again = dkl.PairwiseKernelLearner(gamma=model.gamma_, wrong_pairs="trust", **CV)
    with pytest.warns(DataWarning, match="contradict"):
        again.fit(X, pairs=dkl.Pairs(pairs.must_link, pairs.cannot_link, weights=told.trust))
    assert np.array_equal(again.factor_, model.factor_)
    with pytest.warns(DataWarning) as seen:
        dropped = dkl.PairwiseKernelLearner(contradictions="drop", **CV).fit(X, pairs=pairs)
        trusted = dkl.PairwiseKernelLearner(wrong_pairs="trust", **CV).fit(X, pairs=pairs)
    assert len(seen) == 1 and trusted.result_.wrong_pairs is None
    assert index_of(y, model) >= max(index_of(y, dropped), index_of(y, trusted)) + 0.05


@pytest.mark.parametrize("gamma", but_for([100.0], [100.0, "cv"]))
def test_a_tenth_of_wrong_pairs_of_digits(gamma):
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(X))[:300]
    X, y = X[rows] / 16.0, y[rows]
    pairs, _ = noisy(y, 600, 0.1)
    with pytest.warns(DataWarning) as seen:
        model = dkl.PairwiseKernelLearner(gamma=gamma, **CV).fit(X, pairs=pairs)
    said = r"cannot-links lie inside must-link components, so some pairs are wrong: \d+ of 600 pairs look wrong"
    assert [bool(re.search(said, str(one.message))) for one in seen] == [False, True]
    dropped = dkl.PairwiseKernelLearner(contradictions="drop", **CV).fit(X, pairs=pairs)
    assert index_of(y, model) > index_of(y, dropped)


@pytest.mark.parametrize("weighted", but_for([False], [False, True]))
def test_right_pairs_give_the_bytes_of_trust(iris, weighted):
    X, y = iris
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 150) if weighted else None
    drawn = dkl.Pairs.from_labels(y, 75, 75, random_state=1)
    pairs = dkl.Pairs(drawn.must_link, drawn.cannot_link, weights=weights)
    trusted, auto, find = (
        dkl.PairwiseKernelLearner(wrong_pairs=how, **CV).fit(X, pairs=pairs) for how in ("trust", "auto", "find")
    )
    assert trusted.factor_.tobytes() == auto.factor_.tobytes() == find.factor_.tobytes()
    assert auto.result_.wrong_pairs is None and auto.cv_ is None
    told = find.result_.wrong_pairs
    assert not told.flagged.any() and not told.is_used and "all are trusted" in str(told)
    assert find.gamma_ == 100.0 and told.share < 0.05


def test_names_of_rows_do_not_matter(found):
    """But for the folds, which are drawn by position."""
    X, _, pairs, wrong, model = found
    order = np.random.default_rng(3).permutation(len(X))
    place = np.argsort(order)
    moved = dkl.Pairs(place[pairs.must_link], place[pairs.cannot_link])
    with pytest.warns(DataWarning):
        other = dkl.PairwiseKernelLearner(**CV).fit(X[order], pairs=moved)
    told = other.result_.wrong_pairs
    checked = told.pairs
    truth = dict(zip(map(frozenset, np.c_[pairs.i, pairs.j].tolist()), wrong, strict=True))
    wrong_there = [truth[frozenset(order[[i, j]].tolist())] for i, j in zip(checked.i, checked.j, strict=True)]
    assert roc_auc_score(wrong_there, told.probability) > 0.9
    assert told.share == pytest.approx(model.result_.wrong_pairs.share, abs=0.1)


class Leave:
    """A callback that ends the run at a row, for it to be resumed, or as a crash would."""

    def __init__(self, at, crash):
        self.at, self.comes_back, self.crash, self.seen = at, not crash, crash, 0

    def __call__(self, row):
        self.seen += 1
        if self.crash and self.seen == self.at:
            raise ZeroDivisionError
        return self.seen == self.at


@pytest.mark.parametrize(("at", "crash"), but_for([(2, False)], [(2, False), (8, True), (11, False)]))
def test_a_run_that_is_left_ends_in_the_same_bytes(found, tmp_path, at, crash):
    X, _, pairs, _, model = found
    left = dkl.PairwiseKernelLearner(**CV, work_dir=tmp_path, callbacks=Leave(at, crash))
    with pytest.warns(DataWarning), pytest.raises(ZeroDivisionError if crash else InterruptedRunError):
        left.fit(X, pairs=pairs)
    (run,) = tmp_path.iterdir()
    with pytest.warns(DataWarning, match="look wrong"):
        resumed = dkl.resume(run, n_jobs=1)
    assert resumed.factor_.tobytes() == model.factor_.tobytes()
    assert np.array_equal(resumed.result_.wrong_pairs.probability, model.result_.wrong_pairs.probability)
    assert not (run / "folds").exists()


def test_loaded_shown_and_verified(found, tmp_path):
    model = found[-1]
    loaded = dkl.load(model.run_path_)
    told, known = loaded.result_.wrong_pairs, model.result_.wrong_pairs
    assert np.array_equal(told.probability, known.probability) and str(told) == str(known)
    answer = call("info", model.run_path_)
    assert "pairs look wrong" in answer.out and "log-likelihood" in answer.out
    content = json.loads(call("info", model.run_path_, "--json").out)
    assert content["wrong_pairs"]["flagged"] == known.flagged.sum()
    assert content["wrong_pairs"]["probability"] == known.probability.tolist()
    assert call("verify", model.run_path_).code == 0
    for name, change in (("probability", lambda p: np.where(p > 0.5, 0.0, p)), ("scores", lambda s: 1.0 - s)):
        changed = shutil.copytree(model.run_path_, tmp_path / name)
        store = RunStore.open(changed)
        arrays = store.read_arrays("choice")
        store.write_arrays("choice", arrays | {name: change(arrays[name])})
        assert call("verify", changed).code == 6


def test_the_command_finds_the_same(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _, pairs, _, model = found
    np.savez("X.npz", X=X)
    np.savez("pairs.npz", must_link=pairs.must_link, cannot_link=pairs.cannot_link)
    files = ("--data", "X.npz", "--pairs", "pairs.npz", "--out", "run.zarr")
    plan = call("plan", "pairwise", *files)
    assert plan.code == 0 and "wrong pairs first: 3 kernels in each of 3 folds" in plan.out
    answer = call(
        "fit", "pairwise", "--no-picture", *files, "--seed", RunStore.open(model.run_path_).config["settings"]["seed"]
    )
    assert answer.code == 0 and answer.err.count("look wrong, and count for less") == 1
    assert np.array_equal(dkl.load("run.zarr").factor_, model.factor_)


def test_a_cluster_finds_the_same(found, client):
    X, _, pairs, _, model = found
    with pytest.warns(DataWarning):
        there = dkl.PairwiseKernelLearner(random_state=0, client=client).fit(X, pairs=pairs)
    assert there.factor_.tobytes() == model.factor_.tobytes()


def test_too_few_pairs_and_too_little_memory(iris):
    X, _ = iris
    few = {"must_link": [[0, 1], [1, 2]], "cannot_link": [[0, 2], [3, 100]]}
    with pytest.warns(DataWarning, match="contradict each other"):
        assert dkl.PairwiseKernelLearner(**CV).fit(X, **few).result_.wrong_pairs is None
    with pytest.raises(InputError, match="too few must-links to hold some out"), pytest.warns(DataWarning):
        dkl.PairwiseKernelLearner(wrong_pairs="find", **CV).fit(X, **few)
    small = dkl.PairwiseKernelLearner(gamma=0.5, wrong_pairs="find", **CV)  # nothing smaller to compare with
    assert small.fit(X, must_link=few["must_link"], cannot_link=[[3, 100]]).result_.wrong_pairs is None

"""Quality of a kernel of pairs: the AUC of pairs that it did not learn from, next to that of the rows' distances."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import call
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import dkl
from dkl.errors import DataWarning
from dkl.estimators.base.plain_models import similarities
from dkl.quality import auc_error, auc_of
from dkl.stores.run import RunStore

FIT = {"random_state": 0, "n_jobs": 1}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    return X, y, dkl.Pairs.from_labels(y, 150, 150, random_state=0).check(len(y))


@pytest.fixture(scope="module")
def model(digits, tmp_path_factory):
    X, _, pairs = digits
    return dkl.PairwiseKernelLearner(**FIT, work_dir=tmp_path_factory.mktemp("quality")).fit(X, pairs=pairs)


def held_out(model):
    return RunStore.open(model.run_path_).read_arrays("held_out")


def at(model, i, j):
    return np.einsum("pr,pr->p", model.factor_[i], model.factor_[j])


def test_areas_are_scikit_learn_s_and_the_error_is_their_spread(rng):
    is_must = rng.random(400) < 0.3
    scores = np.round(is_must + rng.standard_normal(400), 1)  # with ties
    others = np.round(0.5 * is_must + 0.5 * scores + rng.standard_normal(400), 1)
    (value, first), (other, second) = auc_of(scores, is_must), auc_of(others, is_must)
    error = auc_error(first, second, is_must)
    assert_allclose([value, other], [roc_auc_score(is_must, scores), roc_auc_score(is_must, others)], rtol=1e-12)
    drawn = []
    for _ in range(400):
        some = rng.integers(400, size=400)
        drawn.append(roc_auc_score(is_must[some], scores[some]) - roc_auc_score(is_must[some], others[some]))
    assert error == pytest.approx(np.std(drawn), rel=0.2)


def test_it_is_that_of_a_fit_without_the_pairs(digits, model):
    X, _, pairs = digits
    numbers, quality = held_out(model)["pair"], model.result_.quality
    assert quality.n == len(numbers) and 20 <= len(numbers) <= 40 and "pairs" in quality.how
    out = np.isin(np.arange(len(pairs.i)), numbers)
    # Those that follow from others by chains of must-links are neither scored nor learned from.
    distances = -np.linalg.norm(X[pairs.i[out]] - X[pairs.j[out]], axis=1)
    assert quality.alternative_value == pytest.approx(roc_auc_score(pairs.sign[out] > 0, distances), abs=1e-12)
    left = dkl.Pairs(pairs.must_link[~out[: pairs.n_must]], pairs.cannot_link[~out[pairs.n_must :]])
    without = dkl.PairwiseKernelLearner(**FIT, holdout=0, target_gap=1e-4).fit(X, pairs=left)
    by_hand = roc_auc_score(pairs.sign[out] > 0, at(without, pairs.i[out], pairs.j[out]))
    assert quality.value == pytest.approx(by_hand, abs=0.03)
    assert quality.value > quality.alternative_value + 0.02


def test_the_fit_is_of_all_pairs_and_as_near_to_the_optimum(digits, model):
    X, _, pairs = digits
    plain = dkl.PairwiseKernelLearner(**FIT, holdout=0).fit(X, pairs=pairs)
    assert plain.result_.quality is None
    for one in (plain, model):
        assert one.result_.outcome.converged and one.certificate_.relative_gap <= 0.01
    assert model.certificate_.objective == pytest.approx(plain.certificate_.objective, rel=0.011)


def test_folds_that_choose_gamma_score_pairs_too(digits):
    X, _, pairs = digits
    model = dkl.PairwiseKernelLearner(**FIT, gamma="cv").fit(X, pairs=pairs)
    scores = model.cv_.scores[model.cv_.best]
    scored = ~np.isnan(scores)
    quality = model.result_.quality
    assert quality.value == pytest.approx(roc_auc_score(pairs.sign[scored] > 0, scores[scored]), abs=1e-12)
    assert quality.n == scored.sum() and "3 folds" in quality.how


@pytest.mark.filterwarnings("ignore:.*cannot-links:dkl.errors.DataWarning")
def test_pairs_that_no_graph_explains_are_said_to_be_better_told_by_distances(rng):
    """Rows on a line, alike where they are near: distances tell that, and a kernel of few pairs at random does not."""
    X = rng.random((400, 1))
    ends = rng.integers(400, size=(160, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    alike = np.abs(X[ends[:, 0], 0] - X[ends[:, 1], 0]) < 0.2
    learner = dkl.PairwiseKernelLearner(**FIT, n_neighbors=2, wrong_pairs="trust", holdout=0.3)
    with pytest.warns(
        DataWarning, match=r"held-out AUC of pairs 0\.\d+ is less than that of distances of rows, 1.000 .* try "
    ):
        learner.fit(X, must_link=ends[alike], cannot_link=ends[~alike])
    assert learner.result_.quality.is_worse


def test_too_few_pairs_of_a_kind_say_nothing(digits):
    X, _, pairs = digits
    few = dkl.Pairs(pairs.must_link[:20], pairs.cannot_link[:20])
    assert dkl.PairwiseKernelLearner(**FIT).fit(X, pairs=few).result_.quality is None
    of_a_kind = dkl.Pairs(pairs.must_link[:0], pairs.cannot_link)
    assert dkl.PairwiseKernelLearner(**FIT).fit(X, pairs=of_a_kind).result_.quality is None


def test_what_is_loaded_and_drawn_says_it(model):
    again = dkl.load(model.run_path_)
    assert again.result_.quality == model.result_.quality
    figure = again.plot()
    assert figure.get_suptitle().startswith(model.result_.quality.title)
    assert all(one.agrees for one in dkl.open_run(model.run_path_).verify())


def test_a_changed_score_is_found_out(model, tmp_path):
    folder = shutil.copytree(model.run_path_, tmp_path / "run")
    run = RunStore.open(folder)
    held = run.read_arrays("held_out")
    run.write_arrays("held_out", held | {"scores": -held["scores"]})
    assert call("verify", folder).code == 6


@pytest.mark.parametrize("moment", ["in the fold", "at the first row"])
def test_a_run_that_is_left_ends_in_the_same_bytes(digits, model, tmp_path, monkeypatch, moment):
    X, _, pairs = digits

    def crash(*args):
        raise ZeroDivisionError

    callbacks = [crash] if moment == "at the first row" else None
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        if callbacks is None:
            patch.setattr("dkl.estimators.pairwise.choice.pair_folds", crash)
        dkl.PairwiseKernelLearner(**FIT, work_dir=tmp_path, callbacks=callbacks).fit(X, pairs=pairs)
    (run,) = tmp_path.iterdir()
    resumed = dkl.resume(run, n_jobs=1)
    assert resumed.factor_.tobytes() == model.factor_.tobytes()
    assert resumed.result_.quality == model.result_.quality
    assert not (run / "folds").exists()


def test_the_command_says_the_same(digits, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, _, pairs = digits
    np.savez("X.npz", X=X)
    np.savez("pairs.npz", must_link=pairs.must_link, cannot_link=pairs.cannot_link)
    seed = RunStore.open(model.run_path_).config["settings"]["seed"]
    answer = call("fit", "pairwise", "--data", "X.npz", "--pairs", "pairs.npz", "--out", "run.zarr", "--seed", seed)
    assert answer.code == 0 and str(model.result_.quality) in answer.out
    assert str(model.result_.quality) in call("info", "run.zarr").out
    assert json.loads(call("info", "run.zarr", "--json").out)["report"]["quality"] == model.result_.quality.as_dict()


def test_an_affinity_is_its_own_alternative(digits):
    X, _, pairs = digits
    graph = dkl.PairwiseKernelLearner(**FIT, holdout=0).fit(X, pairs=pairs).graph_
    affinity = sp.csr_array(sp.diags_array(graph.laplacian.diagonal()) - graph.laplacian)
    quality = dkl.PairwiseKernelLearner(**FIT, affinity="precomputed").fit(affinity, pairs=pairs).result_.quality
    assert quality.alternative == "the affinity" and quality.value > quality.alternative_value


def test_distances_of_small_integers_do_not_wrap_around():
    X = np.array([[0, 3], [255, 1], [7, 9]], np.uint8)
    found = similarities(X, np.array([[0, 1], [1, 2]]))
    assert found.tolist() == [-(255.0**2 + 2**2), -(248.0**2 + 8**2)]

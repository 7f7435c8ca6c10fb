"""The quality of kernels and metrics from labels, triplets and pairs: that of a fit without the held-out part."""

import warnings

import numpy as np
import pytest
from command_line import call
from quality_checks import LESS, check_other_model, check_run, check_verify
from sklearn.datasets import load_wine
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.errors import DataWarning
from dkl.problems.pair_folds import follows
from dkl.quality import held_out

MEASURES = {
    "labels": "held-out accuracy of 1-NN",
    "triplets": "held-out triplets that hold",
    "pairs": "held-out AUC of pairs",
}


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True)
    X = np.hstack([StandardScaler().fit_transform(X), 2 * np.random.default_rng(0).standard_normal((len(X), 6))])
    return X, y


def pairs_of(y, count, rng):
    ends = np.unique(np.sort(rng.permuted(np.arange(len(y)).repeat(4)).reshape(-1, 2)), axis=0)
    ends = rng.permutation(ends[ends[:, 0] != ends[:, 1]])[:count]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    return dkl.Pairs(ends[same], ends[~same])


LEARNERS = {
    "kernel": (dkl.LogDetKernelLearner, {"kernel": "rbf", "n_components": 250}),
    "graph": (dkl.LogDetKernelLearner, {"kernel": "laplacian", "n_components": 250}),
    "metric": (dkl.LogDetMetricLearner, {}),
    "metric of 3 columns": (dkl.LogDetMetricLearner, {"n_components": 3}),
}


def rows_of(model, X, name):
    """Rows whose distances are the learned ones, and those that it started from."""
    if name.startswith("metric"):
        return model.transform(X), X
    unlearned = model._prior.within(np.arange(len(X)))
    values, vectors = np.linalg.eigh(unlearned)
    return model.transform(X), vectors * np.sqrt(np.maximum(values, 0))


@pytest.mark.parametrize("name", LEARNERS)
def test_of_labels_it_is_the_accuracy_of_the_nearest_neighbor(wine, name):
    X, y = wine
    kind, options = LEARNERS[name]
    labels = np.where(np.arange(len(y)) % 4 == 0, -1, y)
    labeled = np.flatnonzero(labels >= 0)
    quality = kind(loss="log", holdout=0.3, **options).fit(X, labels).result_.quality
    test = labeled[held_out(len(labeled), 0.3, 0, 5, labels[labeled])]
    train = np.setdiff1d(labeled, test)
    triplets = dkl.Triplets.from_labels(X, labels).triplets
    rest = triplets[~np.isin(triplets, test).any(axis=1)]
    model = kind(loss="log", holdout=0, tol=1e-4, **options).fit(X, triplets=rest)
    for value, rows in zip((quality.value, quality.alternative_value), rows_of(model, X, name), strict=True):
        found = KNeighborsClassifier(1).fit(rows[train], y[train]).score(rows[test], y[test])
        assert value == pytest.approx(found, abs=1.5 / len(test))
    assert (quality.measure, quality.n) == (MEASURES["labels"], len(test))


@pytest.mark.parametrize("name", LEARNERS)
def test_of_triplets_it_is_the_share_that_holds(wine, name):
    X, y = wine
    kind, options = LEARNERS[name]
    triplets = np.random.default_rng(2).permutation(dkl.Triplets.from_labels(X, y, 3, 3).triplets)[:300]
    triplets = dkl.Triplets(triplets).check(len(X)).triplets  # in the order of a fit
    quality = kind(loss="log", holdout=0.3, **options).fit(X, triplets=triplets).result_.quality
    test = held_out(300, 0.3, 0, 5)
    model = kind(loss="log", holdout=0, tol=1e-4, **options).fit(X, triplets=np.delete(triplets, test, axis=0))
    anchor, similar, other = triplets[test].T
    for value, Z in zip((quality.value, quality.alternative_value), rows_of(model, X, name), strict=True):
        holds = np.linalg.norm(Z[anchor] - Z[similar], axis=1) < np.linalg.norm(Z[anchor] - Z[other], axis=1)
        assert value == pytest.approx(holds.mean(), abs=1.5 / len(test))
    assert (quality.measure, quality.n) == (MEASURES["triplets"], 90)


@pytest.mark.parametrize("name", ["kernel", "metric", "metric of 3 columns"])
def test_of_pairs_it_is_the_auc_of_those_that_do_not_follow(wine, name, rng):
    X, y = wine
    kind, options = LEARNERS[name]
    pairs = pairs_of(y, 150, rng).check(len(X))  # in the order of a fit
    quality = kind(loss="itml", holdout=0.4, **options).fit(X, pairs=pairs).result_.quality
    left = ~np.isin(np.arange(150), held_out(150, 0.4, 0, 5, (pairs.sign > 0).astype(int)))
    test = ~left & ~follows(len(X), pairs, left)
    rest = dkl.Pairs(*(np.stack([pairs.i, pairs.j], axis=1)[left & (pairs.sign == sign)] for sign in (1, -1)))
    model = kind(loss="itml", holdout=0, tol=1e-4, **options).fit(X, pairs=rest)
    for value, Z in zip((quality.value, quality.alternative_value), rows_of(model, X, name), strict=True):
        apart = np.linalg.norm(Z[pairs.i[test]] - Z[pairs.j[test]], axis=1)
        assert value == pytest.approx(roc_auc_score(pairs.sign[test] > 0, -apart), abs=0.02)
    assert (quality.measure, quality.n) == (MEASURES["pairs"], np.count_nonzero(test))


@pytest.mark.parametrize("name", ["kernel", "metric"])
def test_what_is_learned_differs_by_no_more_than_is_proven(wine, name):
    """The fit begins at what was learned without the held-out part, and ends within the same gap."""
    X, y = wine
    kind, options = LEARNERS[name]
    with_it, without = (kind(holdout=share, tol=1e-8, **options).fit(X, y) for share in (0.1, 0.0))
    for one in (with_it, without):
        assert one.result_.outcome.converged and one.certificate_.relative_gap <= 1e-8
    assert with_it.certificate_.objective == pytest.approx(without.certificate_.objective, rel=1e-8)
    squares = [np.square(Z[:, None] - Z).sum(axis=2) for Z in (with_it.transform(X), without.transform(X))]
    np.testing.assert_allclose(*squares, atol=1e-3 * squares[1].max())
    assert with_it.result_.quality is not None and without.result_.quality is None


def test_useless_labels_warn_and_good_ones_do_not(wine):
    X, y = wine
    learner = dkl.LogDetMetricLearner(loss="log", holdout=0.3)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{LESS}")
        learner.fit(X, y)
    # Anchors are told to be near to rows of other classes.
    wrong = dkl.Triplets.from_labels(X, y, 3, 3).triplets[:, [0, 2, 1]]
    true = dkl.Triplets.from_labels(X, y, 3, 3).triplets
    is_wrong = np.arange(len(true)) % 5 > 1
    mixed = np.where(is_wrong[:, None], wrong, true)
    test = held_out(len(true), 0.3, 0, 5)
    mixed[test] = true[test]
    with pytest.warns(DataWarning, match=f"{LESS} Euclidean distances"):
        learner.fit(X, triplets=mixed)


@pytest.mark.exhaustive
def test_a_run_says_what_the_estimator_says(wine, tmp_path, monkeypatch):
    X, y = wine
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=y)
    answer = call(
        "fit", "logdet", "--data", "X.npz", "--gamma", "4", "--gamma", "8", "--threads", "1", "--out", "run.zarr"
    )
    assert answer.code == 0
    check_run(answer, "run.zarr")
    estimator = dkl.LogDetKernelLearner(gamma=8.0, n_jobs=1).fit(X, y)
    stored = dkl.load("run.zarr").result_.quality
    assert (stored.n, stored.how) == (18, "18 of 178 labeled rows")
    assert stored.value == pytest.approx(estimator.result_.quality.value, abs=1 / 18)
    check_verify("run.zarr")
    check_other_model("run.zarr", lambda held, fit: {"multipliers": 1.5 * held["multipliers"]})


@pytest.mark.parametrize(
    ("kernel", "loss", "side"),
    [
        ("laplacian", "log", "labels"),
        ("precomputed", "itml", "pairs"),
        pytest.param("rbf", "hinge", "triplets", marks=pytest.mark.exhaustive),
        pytest.param("rbf", "linear", "triplets", marks=pytest.mark.exhaustive),
        pytest.param("laplacian", "hoi", "pairs", marks=pytest.mark.exhaustive),
        pytest.param("rbf", "hoi_hinge", "labels", marks=pytest.mark.exhaustive),
    ],
)
def test_verify_recomputes_it_of_each_kind_of_side_information(wine, kernel, loss, side, rng, tmp_path, monkeypatch):
    X, y = wine
    monkeypatch.chdir(tmp_path)
    given = rbf_kernel(X, gamma=0.05) if kernel == "precomputed" else X
    np.savez("X.npz", X=given, y=y)
    pairs = pairs_of(y, 150, rng).check(len(X))
    kinds = np.where(pairs.sign > 0, "must", "cannot")
    lines = [f"{i},{j},{kind}" for i, j, kind in zip(pairs.i, pairs.j, kinds, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")
    triplets = dkl.Triplets.from_labels(X, y, 3, 3).triplets[:300]
    np.savetxt("triplets.csv", triplets, fmt="%d", delimiter=",", header="anchor,similar,dissimilar", comments="")
    more = () if side == "labels" else (f"--{side}", f"{side}.csv")
    options = f"--kernel {kernel} --loss {loss} --gamma 1 --threads 1 --holdout 0.3".split()
    assert call("fit", "logdet", "--data", "X.npz", *options, *more, "--out", "run.zarr").code == 0
    assert dkl.open_run("run.zarr").report["quality"]["measure"] == MEASURES[side]
    check_verify("run.zarr")

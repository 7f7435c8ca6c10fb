"""The quality of an unfolding: scikit-learn's trustworthiness, next to that of principal components."""

import warnings

import numpy as np
import pytest
from command_line import call
from quality_checks import LESS, check_run
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

import dkl
from dkl.errors import DataWarning


def roll(n, rng):
    """A rolled strip (n, 3), evenly taken."""
    along, across = np.sort(rng.random(n)) * 9.0, rng.random(n) * 3.0
    angle = 1.0 + along / 1.5
    return np.stack([angle * np.cos(angle), angle * np.sin(angle), across], axis=1)


@pytest.mark.parametrize("n", [60, 300])
def test_it_is_the_trustworthiness_of_scikit_learn(n, rng):
    X = roll(n, rng)
    model = dkl.MaximumVarianceUnfolding(n_neighbors=8).fit(X)
    quality, plain = model.result_.quality, PCA(2).fit_transform(X)
    found = {"trustworthiness": quality.value, **quality.others, "PCA": quality.alternative_value}
    wanted = {
        "trustworthiness": trustworthiness(X, model.embedding_, n_neighbors=10),
        "continuity": trustworthiness(model.embedding_, X, n_neighbors=10),
        "continuity of PCA": trustworthiness(plain, X, n_neighbors=10),
        "PCA": trustworthiness(X, plain, n_neighbors=10),
    }
    # scikit-learn's distances in the embedding cancel; in the rows, those that differ by rounding may change ranks: 1e-6 each.
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, abs=1e-3 if name == "continuity" else 1e-5), name
    assert (quality.measure, quality.n, quality.alternative) == ("trustworthiness", n, "PCA")


def test_of_many_rows_it_is_that_of_some(rng, monkeypatch):
    monkeypatch.setattr("dkl.estimators.mvu.quality.MAX_ROWS", 100)
    quality = dkl.MaximumVarianceUnfolding(n_neighbors=8).fit(roll(300, rng)).result_.quality
    assert (quality.n, quality.how) == (100, "10 neighbors of 100 of 300 rows")


def test_the_embedding_does_not_depend_on_it(rng):
    X = roll(80, rng)
    with_it, without = (dkl.MaximumVarianceUnfolding(n_neighbors=8, holdout=share).fit(X) for share in (0.1, 0))
    assert with_it.embedding_.tobytes() == without.embedding_.tobytes()
    assert with_it.result_.quality is not None and without.result_.quality is None


def test_a_useless_unfolding_warns_and_a_good_one_does_not(rng):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{LESS}")
        dkl.MaximumVarianceUnfolding(n_neighbors=8).fit(roll(300, rng))
    flat = np.hstack([rng.standard_normal((200, 2)), 1e-3 * rng.standard_normal((200, 5))])
    with pytest.warns(DataWarning, match=f"trustworthiness .* {LESS} PCA"):
        dkl.MaximumVarianceUnfolding(n_neighbors=8, n_basis=2, standardize=False).fit(flat)


def test_a_run_of_unfolding_says_what_the_estimator_says_and_verify_recomputes_it(rng, tmp_path, monkeypatch):
    X = roll(150, rng)
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X)
    answer = call("fit", "mvu", "--data", "X.npz", "--n-neighbors", "8", "--threads", "1", "--out", "run.zarr")
    assert answer.code == 0
    check_run(answer, "run.zarr")
    model = dkl.MaximumVarianceUnfolding(n_neighbors=8, n_jobs=1).fit(X)
    assert model.result_.quality.as_dict() == dkl.open_run("run.zarr").report["quality"]
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and "\n  quality" in answer.out and "continuity" in answer.out

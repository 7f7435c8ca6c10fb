"""The quality of unfoldings, eigenmaps and kernel components: scikit-learn's trustworthiness, next to that of principal components."""

import warnings

import dask.array
import numpy as np
import pytest
import zarr
from command_line import call
from quality_checks import LESS, check_run, check_verify
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.metrics.pairwise import rbf_kernel

import dkl
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.rows.row_sources import row_source
from dkl.errors import DataWarning
from dkl.estimators.base.map_quality import rows_to_measure


def roll(n, rng):
    """A rolled strip (n, 3), evenly taken."""
    along, across = np.sort(rng.random(n)) * 9.0, rng.random(n) * 3.0
    angle = 1.0 + along / 1.5
    return np.stack([angle * np.cos(angle), angle * np.sin(angle), across], axis=1)


MAKERS = {
    "unfolding": lambda **given: dkl.MaximumVarianceUnfolding(n_neighbors=8, n_jobs=1, **given),
    "eigenmaps": lambda **given: dkl.SpectralEmbedding(n_jobs=1, **given),
    "components": lambda **given: dkl.KernelPCA(n_jobs=1, random_state=0, **{"gamma": 0.05, **given}),
}
every_learner = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
QUICK = ("eigenmaps", "components")
quick_learners = pytest.mark.parametrize("make", [MAKERS[name] for name in QUICK], ids=QUICK)


def agrees(quality, X, embedding, plain):
    """All four measures are scikit-learn's.

    Its distances cancel, so that ranks next to each other may change places: 1e-6 each. Where the 10th neighbor and the 11th are equally
    far but for rounding, either may be taken, and be anywhere in the other space: rows with the same neighbors in a graph of equal
    weights are one point of an unfolding.
    """
    n, k = len(X), 10
    found = {"trustworthiness": quality.value, **quality.others, "PCA": quality.alternative_value}
    spaces = {
        "trustworthiness": (X, embedding),
        "continuity": (embedding, X),
        "continuity of PCA": (plain, X),
        "PCA": (X, plain),
    }
    for name, (ranked, near) in spaces.items():
        last = np.sort(cdist(near, near), axis=1)[:, [k, k + 1]]
        tied = np.count_nonzero(np.ptp(last, axis=1) <= 1e-7 * last[:, 1])
        allowed = (1e-3 if name == "continuity" else 1e-5) + 2 * tied / (k * (2 * n - 3 * k - 1))
        assert found[name] == pytest.approx(trustworthiness(ranked, near, n_neighbors=k), abs=allowed), name
        assert tied <= n / 3
    assert (quality.measure, quality.n, quality.alternative) == ("trustworthiness", n, "PCA")


@every_learner
@pytest.mark.parametrize("n", [60, 300])
def test_it_is_the_trustworthiness_of_scikit_learn(n, make, rng):
    X = roll(n, rng)
    model = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*{LESS}")
        embedding = model.fit_transform(X)
    agrees(model.result_.quality, X, embedding, PCA(2).fit_transform(X))


@quick_learners
def test_of_sparse_rows_of_many_columns_it_is_the_same(make, rng):
    X = roll(80, rng) @ rng.standard_normal((3, 120)) + 0.01 * rng.standard_normal((80, 120))
    model = make(standardize=False, n_components=3)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f".*{LESS}")
        embedding = model.fit_transform(sparse.csr_array(X))
    agrees(model.result_.quality, X, embedding, PCA(3).fit_transform(X))


def test_of_many_rows_it_is_that_of_some(rng, monkeypatch):
    monkeypatch.setattr("dkl.estimators.base.map_quality.MAX_ROWS", 100)
    quality = dkl.MaximumVarianceUnfolding(n_neighbors=8).fit(roll(300, rng)).result_.quality
    assert (quality.n, quality.how) == (100, "10 neighbors of 100 of 300 rows")


@quick_learners
@pytest.mark.filterwarnings(f"ignore:.*{LESS}")
def test_quick_fits_are_measured_on_fewer_rows(make, rng, monkeypatch):
    X = roll(400, rng)
    model = make()
    embedding, quality = model.fit_transform(X), model.result_.quality
    assert (quality.n, quality.how) == (300, "10 neighbors of 300 of 400 rows")
    whole = trustworthiness(X, embedding, n_neighbors=10)
    assert abs(quality.value - whole) < 0.02  # of 300 rows 10 neighbors are a third more of all
    monkeypatch.setattr("dkl.estimators.base.map_quality.MIN_ROWS", 30)
    assert make().fit(X).result_.quality.n == 400 // 6
    assert make(holdout=0).fit(X).result_.quality is None


def test_a_memory_limit_takes_fewer_rows_and_its_least_takes_none(rng):
    source = row_source(rng.standard_normal((4000, 500)))
    wanted, few = rows_to_measure(source, 0.1, None), rows_to_measure(source, 0.1, PROCESS_BASE + 2_000_000)
    assert wanted == 4000 // 6 and 30 < few < 150
    assert rows_to_measure(source, 0.1, PROCESS_BASE) == rows_to_measure(source, 0, None) == 0
    thin = row_source(sparse.csr_array((np.ones(4000), (np.arange(4000), np.arange(4000))), shape=(4000, 1_000_000)))
    assert rows_to_measure(thin, 0.1, PROCESS_BASE + 200_000_000) == wanted  # they are never dense


@quick_learners
def test_only_a_map_is_warned_of(make, rng):
    X = np.hstack([rng.standard_normal((200, 2)), 1e-3 * rng.standard_normal((200, 5))])
    given = {"standardize": False}
    if make is MAKERS["components"]:
        given["gamma"] = 30.0
    with pytest.warns(
        DataWarning, match=f"trustworthiness .* {LESS} PCA.*MaximumVarianceUnfolding for a map"
    ) as caught:
        make(**given).fit(X)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{LESS}")
        model = make(n_components=4, **given).fit(X)
        assert model.result_.quality.is_worse
        assert make(**given).fit(X[:, :2]).result_.quality.alternative_value == 1


def test_what_has_no_rows_or_is_pca_has_no_quality(rng):
    X = roll(60, rng)
    K = rbf_kernel(X)
    assert dkl.KernelPCA(kernel="precomputed").fit(K).result_.quality is None
    assert dkl.KernelPCA(kernel="linear").fit(X).result_.quality is None
    assert dkl.SpectralEmbedding(affinity="precomputed").fit(K).result_.quality is None
    assert dkl.KernelPCA(callbacks=lambda row: True, tol=0).fit(X).result_.quality is None
    assert dkl.SpectralEmbedding(n_neighbors=5).fit(X[:21]).result_.quality is None


@pytest.mark.filterwarnings(f"ignore:.*{LESS}")
def test_it_is_the_same_wherever_the_rows_are(rng, tmp_path, client):
    X = roll(400, rng)
    wanted = MAKERS["components"]().fit(X).result_.quality
    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(70, 3), dtype="f8")
    stored[:] = X
    np.save(tmp_path / "X.npy", X)
    for rows in (stored, str(tmp_path / "X.npy"), dask.array.from_array(X, chunks=(111, 3))):
        assert MAKERS["components"]().fit(rows).result_.quality == wanted
    for name in QUICK:
        here = MAKERS[name]().fit(X).result_
        there = MAKERS[name](client=client).fit(X).result_
        assert there.quality == here.quality and there.seconds["quality"] > 0 and repr(here.quality) in repr(here)


@every_learner
@pytest.mark.filterwarnings(f"ignore:.*{LESS}")
def test_the_embedding_does_not_depend_on_it(make, rng):
    X = roll(80, rng)
    with_it, without = (make(holdout=share).fit(X) for share in (0.1, 0))
    assert with_it.fit_transform(X).tobytes() == without.fit_transform(X).tobytes()
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
    check_verify("run.zarr")
    assert "continuity" in call("verify", "run.zarr").out

"""PairwiseKernelLearner as scikit-learn users meet it: its contract, side information, paths, sizes beyond memory."""

import warnings

import dask.array as da
import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dkl
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, DataWarning, InputError, MemoryBudgetError
from dkl.estimators.pairwise.fit import make_problem
from dkl.estimators.pairwise.plan import make_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.stores.run import RunStore


@parametrize_with_checks([dkl.PairwiseKernelLearner(max_iter=20, target_gap=None, random_state=0)])
def test_scikit_learn_s_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 20 iterations do not converge, and the checks' data sets are tiny
        check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks([dkl.PairwiseKernelLearner(max_iter=20, random_state=0)])
def test_scikit_learn_s_contract_with_a_proof(estimator, check):
    test_scikit_learn_s_contract(estimator, check)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(300, n_features=5, centers=4, cluster_std=2.0, random_state=0)
    return X, y, dkl.Pairs.from_labels(y, random_state=0)


def learner(**changes):
    return dkl.PairwiseKernelLearner(random_state=0, **{"tol": 1e-3, "max_iter": 2000, **changes})


def test_the_three_forms_of_side_information_are_the_same(blobs):
    X, y, pairs = blobs
    by_arrays = learner().fit(X, must_link=pairs.must_link, cannot_link=pairs.cannot_link).factor_
    by_object = learner().fit(X, pairs=pairs).factor_
    drawn = dkl.Pairs.from_labels(y, 1500, 1500, random_state=0)
    by_labels = learner().fit(X, y).factor_
    assert np.array_equal(by_arrays, by_object)
    assert np.array_equal(by_labels, learner().fit(X, pairs=drawn).factor_)


def test_pairs_are_obeyed_and_the_certificate_holds(blobs):
    X, y, pairs = blobs
    est = learner().fit(X, pairs=pairs)
    K = est.factor_ @ est.factor_.T
    alike = K[tuple(pairs.must_link.T)].mean()
    unlike = K[tuple(pairs.cannot_link.T)].mean()
    assert alike > 0.9 and abs(unlike) < 0.1
    assert np.abs(np.diag(K) - 1).max() < 0.2
    assert est.result_.outcome.converged and est.n_iter_ == len(est.result_.history)
    assert est.certificate_.gap >= 0
    assert est.rank_ == est.factor_.shape[1]
    labels = KMeans(4, n_init=5, random_state=0).fit_predict(est.factor_)
    assert dkl.adjusted_rand_index(y, labels) > 0.9


def test_sparse_rows_equal_dense_rows(blobs):
    X, _, pairs = blobs
    dense = learner().fit(X, pairs=pairs).factor_
    assert np.array_equal(learner().fit(sparse.csr_array(X), pairs=pairs).factor_, dense)


def test_target_gap_is_proven(blobs):
    X, _, pairs = blobs
    est = learner(target_gap=1e-6).fit(X, pairs=pairs)
    assert est.result_.outcome.converged
    assert est.certificate_.relative_gap <= 1e-6
    direct = learner(solver="factored", target_gap=1e-6).fit(X, pairs=pairs)
    assert direct.certificate_.objective == pytest.approx(est.certificate_.objective, rel=2e-6)
    assert direct.rank_ < 64


def test_a_path_over_gamma_by_warm_starts_takes_fewer_iterations(blobs):
    X, _, pairs = blobs
    warm, cold_iterations, warm_iterations = learner(warm_start=True), 0, 0
    for gamma in (30.0, 40.0, 50.0):
        warm.set_params(gamma=gamma).fit(X, pairs=pairs)
        cold = learner(gamma=gamma).fit(X, pairs=pairs)
        if gamma > 30.0:
            warm_iterations += warm.n_iter_
            cold_iterations += cold.n_iter_
        assert warm.certificate_.objective == pytest.approx(cold.certificate_.objective, rel=0.02)
    assert warm_iterations < cold_iterations


def test_grid_search_keeps_the_right_pairs():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    pairs = dkl.Pairs.from_labels(y, n_must=150, n_cannot=150, random_state=0)

    class Scored(dkl.PairwiseKernelLearner):
        def score(self, X, y=None):
            rows = self.transform(X)
            return float((rows @ rows.T)[y[:, None] == y[None, :]].mean())

    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        est = Scored(max_iter=30, random_state=0).set_fit_request(pairs=True, sample_ids=True)
        search = GridSearchCV(est, {"gamma": [1.0, 100.0]}, cv=3, error_score="raise")
        search.fit(X, y, pairs=pairs, sample_ids=np.arange(300))
        assert search.best_estimator_.factor_.shape[0] == 300
        with pytest.raises(ValueError, match="sample_ids"):
            est = Scored(max_iter=5).set_fit_request(must_link=True, cannot_link=True)
            GridSearchCV(est, {"gamma": [1.0]}, cv=3, error_score="raise").fit(
                X, y, must_link=pairs.must_link, cannot_link=pairs.cannot_link
            )


def test_pipeline_and_clone(blobs):
    X, y, _ = blobs
    pipe = make_pipeline(StandardScaler(), learner(rank=12))
    rows = pipe.fit_transform(X, y)
    assert rows.shape == (300, pipe[-1].rank_)
    assert len(pipe[-1].get_feature_names_out()) == pipe[-1].rank_
    assert clone(pipe[-1]).get_params() == pipe[-1].get_params()


def test_new_rows_fall_to_their_neighbours(blobs, rng):
    X, y, pairs = blobs
    est = learner().fit(X, pairs=pairs)
    new = X[:40] + 0.01 * rng.standard_normal((40, 5))
    rows = est.transform(new)
    near = np.einsum("ij,ij->i", rows, est.factor_[:40]) / np.linalg.norm(est.factor_[:40], axis=1)
    assert np.median(near) > 0.95
    assert np.array_equal(est.transform(X[:7]), est.factor_[:7])
    assert np.all(np.isfinite(est.transform(new + 1e6)))


def test_similarities_of_one_s_own_stand_in_for_the_graph(blobs):
    X, _, pairs = blobs
    graph = learner().fit(X, pairs=pairs).graph_
    # The off-diagonal of the unnormalised Laplacian is -W.
    W = -learner(laplacian="unnormalized").fit(X, pairs=pairs).graph_.laplacian
    W.setdiag(0)
    given = learner(affinity="precomputed").fit(W, pairs=pairs)
    assert abs(given.graph_.laplacian - graph.laplacian).max() < 1e-12
    assert given.graph_.n_components == graph.n_components
    for same in (W.toarray(), da.from_array(W.toarray(), chunks=100)):
        assert np.array_equal(learner(affinity="precomputed").fit(same, pairs=pairs).factor_, given.factor_)


def test_new_rows_may_be_sparse_where_the_learned_are_dense(blobs):
    X, _, pairs = blobs
    new = np.where(np.abs(X[:50]) < 1, 0.0, X[:50])
    for learned in (X, sparse.csr_array(X)):
        est = learner().fit(learned, pairs=pairs)
        np.testing.assert_allclose(est.transform(sparse.csr_array(new)), est.transform(new), atol=1e-12)


def test_numbers_of_numpy_are_numbers(blobs, tmp_path):
    X, _, pairs = blobs
    numbers = {"rank": np.int64(8), "n_neighbors": np.int32(5), "max_iter": np.int16(2000), "sigma": np.float32(2.0),
               "gamma": np.float32(50.0), "memory_limit": np.int64(10**9), "checkpoint_every": np.int64(7)}  # fmt: skip
    est = learner(**numbers, work_dir=tmp_path).fit(X, pairs=pairs)
    plain = learner(**{name: value.item() for name, value in numbers.items()}).fit(X, pairs=pairs)
    assert np.array_equal(est.factor_, plain.factor_)
    assert RunStore.open(est.run_path_).config["settings"]["rank"] == 8


def test_unlabelled_among_words(blobs):
    X, y, _ = blobs
    words = [-1 if row % 3 == 0 else "abcd"[label] for row, label in enumerate(y)]
    numbers = np.where(np.arange(300) % 3 == 0, -1, y)
    assert np.array_equal(learner().fit(X, words).factor_, learner().fit(X, numbers).factor_)


def test_a_state_beyond_the_limit_is_kept_on_disk(blobs, tmp_path):
    X, _, pairs = blobs
    wanted = learner(rank=200, max_iter=30, tol=0.0, target_gap=None)
    with pytest.warns(ConvergenceWarning):
        in_memory = wanted.fit(X, pairs=pairs)
    settings = PairwiseSettings(rank=200, memory_limit=1)
    problem = make_problem(in_memory.graph_.laplacian, pairs, 100.0)
    session = Session(None, threads=2)
    limit = make_plan(problem, settings, session, has_store=True, refuse=False).process_bytes
    assert limit < in_memory.result_.plan["process_bytes"]
    on_disk = clone(wanted).set_params(memory_limit=limit, work_dir=tmp_path, n_jobs=2)
    with pytest.warns(ConvergenceWarning):
        on_disk.fit(X, pairs=pairs)
    assert on_disk.result_.plan["placement"] == "disk"
    assert type(on_disk.factor_).__module__.startswith("dask")
    assert np.asarray(on_disk.factor_).tobytes() == in_memory.factor_.tobytes()
    assert not list((tmp_path / "pairwise-001.zarr").glob("scratch-*"))
    with pytest.raises(MemoryBudgetError, match="memory_limit"):
        clone(on_disk).set_params(memory_limit=1000).fit(X, pairs=pairs)


def test_a_run_stopped_by_a_callback_resumes_to_the_same_bytes(blobs, tmp_path):
    X, _, pairs = blobs
    whole = learner(max_iter=60, tol=0.0, target_gap=None)
    with pytest.warns(ConvergenceWarning):
        whole.fit(X, pairs=pairs)
    stopped = learner(
        max_iter=60, tol=0.0, target_gap=None, work_dir=tmp_path, callbacks=lambda row: row["iteration"] == 23
    )
    stopped.fit(X, pairs=pairs)
    assert stopped.n_iter_ == 23
    path = tmp_path / "pairwise-001.zarr"
    (path / "report.json").unlink(missing_ok=True)
    with pytest.warns(ConvergenceWarning):
        again = dkl.resume(path, n_jobs=2)
    assert again.factor_.tobytes() == whole.factor_.tobytes()
    assert again.n_iter_ == 60


@pytest.mark.exhaustive
def test_a_hub_costs_neither_memory_nor_time(rng):
    n = 900
    X = rng.standard_normal((n, 4))
    hub = np.stack([np.zeros(n - 1, int), np.arange(1, n)], axis=1)
    est = dkl.PairwiseKernelLearner(rank=20, max_iter=5, tol=1.0, target_gap=None, random_state=0)
    with pytest.warns(ConvergenceWarning, match="stationary"):
        est.fit(X, must_link=hub[:450], cannot_link=hub[450:])
    plan = est.result_.plan["items"]
    # A Gram matrix over the hub's 899 pairs would be 6.5 MB; its rows are 900 x 32.
    assert plan["rows of hubs"] < 900_000
    assert sum(plan.values()) < 9_000_000


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("rank", 0), ("rank", 2.5), ("rank", "full"), ("rank", True), ("gamma", -1.0), ("gamma", np.nan), ("gamma", "1"),
        ("solver", "sdp"), ("n_neighbors", 0), ("sigma", 0.0), ("laplacian", "signed"), ("max_iter", 0), ("tol", -1e-3),
        ("target_gap", 0.0), ("target_gap", "some"), ("dtype", "int32"), ("memory_limit", "much"), ("checkpoint_every", 0), ("rho", np.inf),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(blobs, parameter, value):
    X, _, pairs = blobs
    with pytest.raises(InputError, match=parameter):
        learner(**{parameter: value}).fit(X, pairs=pairs)


def test_a_rank_beyond_n_is_refused(blobs):
    X, _, pairs = blobs
    with pytest.raises(InputError, match="rank"):
        learner(rank=301).fit(X, pairs=pairs)


def test_fewer_rows_than_neighbors_are_all_neighbors_with_a_warning():
    with pytest.warns(DataWarning, match="^n_neighbors=10, but there are 2 rows: all others are taken"):
        dkl.PairwiseKernelLearner(holdout=0).fit([[0.0], [1.0]], cannot_link=[(0, 1)])

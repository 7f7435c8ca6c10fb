"""KernelKMeans against scikit-learn, against plain loops on kernel distances, and against itself in other places."""

import pickle

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.base import clone
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.datasets import load_digits, make_blobs, make_circles
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks
from solved_oracles import exact, kernel

from dkl.blocks.rows import row_blocks
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError
from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.problems.kmeans import KMeansProblem
from dkl.solvers.kmeans import plus_plus
from dkl.solvers.watch import Outcome


@pytest.fixture
def blobs():
    """2000 rows in R^6, clusters that overlap, so that iterations are many and labels in the balance."""
    X, _ = make_blobs(2000, 6, centers=9, cluster_std=4.0, random_state=3)
    return X


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 20_000)


@parametrize_with_checks([KernelKMeans(n_init=2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks([KernelKMeans(kernel="rbf", n_init=2)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_contract_of_a_kernel(estimator, check):
    check(estimator)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_same_start_ends_as_in_scikit_learn(blobs, small_blocks, dtype):
    X = (blobs + 100).astype(dtype)
    init = X[::250]
    want = KMeans(8, init=init, n_init=1, algorithm="lloyd").fit(X)
    got = KernelKMeans(8, init=init).fit(X)
    accuracy = 1e-10 if dtype == "float64" else 1e-5
    np.testing.assert_array_equal(got.labels_, want.labels_)
    np.testing.assert_allclose(got.inertia_, want.inertia_, rtol=accuracy)
    np.testing.assert_allclose(got.cluster_centers_, want.cluster_centers_, rtol=accuracy)
    assert got.n_iter_ == want.n_iter_
    assert got.cluster_centers_.dtype == dtype
    new = X[::7] + 1
    np.testing.assert_array_equal(got.predict(new), want.predict(new))


def test_one_iteration_is_one_step_of_lloyd(blobs):
    init = blobs[:5]
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        got = KernelKMeans(5, init=init, max_iter=1).fit(blobs)
    labels = np.array([np.argmin([((x - c) ** 2).sum() for c in init]) for x in blobs])
    centers = np.stack([blobs[labels == j].mean(axis=0) for j in range(5)])
    np.testing.assert_allclose(got.cluster_centers_, centers, rtol=1e-12, atol=1e-12)


def kernel_kmeans_by_distances(K, labels, k, iterations):
    """Kernel k-means from labels, on distances K_ii - 2/|J| sum_j K_ij + 1/|J|^2 sum_jl K_jl alone."""
    for _ in range(iterations):
        distances = np.empty((len(K), k))
        for cluster in range(k):
            own = np.flatnonzero(labels == cluster)
            for i in range(len(K)):
                cross = sum(K[i, j] for j in own) / len(own)
                distances[i, cluster] = K[i, i] - 2 * cross + K[np.ix_(own, own)].sum() / len(own) ** 2
        new = distances.argmin(axis=1)
        if (new == labels).all():
            break
        labels = new
    return labels, distances.min(axis=1).sum()


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_kernel_clusters_are_a_fixed_point_of_plain_kernel_kmeans(kernel):
    X, y = make_circles(150, factor=0.2, noise=0.03, random_state=0)
    K = rbf_kernel(X, gamma=8.0)
    got = KernelKMeans(2, kernel=kernel, gamma=8.0, random_state=0).fit(K if kernel == "precomputed" else X)
    labels, inertia = kernel_kmeans_by_distances(K, got.labels_, 2, 1)
    np.testing.assert_array_equal(got.labels_, labels)
    np.testing.assert_allclose(got.inertia_, inertia, rtol=1e-10)
    # Started from any labels at all, the plain loop finds nothing better.
    others = [np.random.default_rng(seed).integers(0, 2, len(X)) for seed in range(3)]
    plain = [kernel_kmeans_by_distances(K, start, 2, 10)[1] for start in others]
    assert got.inertia_ <= min(plain) * (1 + 1e-10)
    # New patterns: the nearest mean by kernel distances.
    new = X[:40] + 0.05
    cross = rbf_kernel(new, X, gamma=8.0)
    means = [got.labels_ == j for j in range(2)]
    want = np.stack([K[np.ix_(own, own)].mean() - 2 * cross[:, own].mean(axis=1) for own in means]).argmin(axis=0)
    np.testing.assert_array_equal(got.predict(cross if kernel == "precomputed" else new), want)


def test_cosines_of_short_rows_are_those_of_their_directions(blobs):
    near, far = (KernelKMeans(3, kernel="cosine", random_state=0).fit(scale * blobs) for scale in (1e-200, 1.0))
    assert np.array_equal(near.labels_, far.labels_) and near.inertia_ == pytest.approx(far.inertia_, rel=1e-9)


def test_kernel_from_a_callable_and_with_params(blobs):
    X = blobs[:80]

    def kernel(x, z, width):
        return float(np.exp(-width * ((x - z) ** 2).sum()))

    named = KernelKMeans(3, kernel="rbf", gamma=0.01, random_state=0).fit(X)
    called = KernelKMeans(3, kernel=kernel, kernel_params={"width": 0.01}, random_state=0).fit(X)
    np.testing.assert_array_equal(called.labels_, named.labels_)


def inputs(X, folder):
    np.save(folder / "x.npy", X)
    return {
        "memmap": np.load(folder / "x.npy", mmap_mode="r"),
        "npy path": folder / "x.npy",
        "zarr": zarr.create_array(str(folder / "x.zarr"), data=X, chunks=(300, 6)),
        "zarr path": str(folder / "x.zarr"),
        "dask": da.from_array(X, chunks=(450, 4)),
        "learner": Learner(X),
        "learner of dask": Learner(da.from_array(X, chunks=(450, 4))),
    }


class Learner:
    """A fitted learner: whatever has a factor_."""

    def __init__(self, factor):
        self.factor_ = factor


def same(got, want):
    np.testing.assert_array_equal(got.labels_, want.labels_)
    np.testing.assert_array_equal(got.cluster_centers_, want.cluster_centers_)
    assert (got.inertia_, got.n_iter_, got.n_features_in_) == (want.inertia_, want.n_iter_, want.n_features_in_)


@pytest.mark.exhaustive
def test_every_kind_of_input_gives_the_same_bits(blobs, small_blocks, tmp_path):
    want = KernelKMeans(4, n_init=2, tol=0.01, random_state=0).fit(blobs)
    for name, X in inputs(blobs, tmp_path).items():
        # The limit is below the rows' 96 kB: stored rows are read anew in each pass, and nothing else is remembered.
        for limit in (None, "90 kB"):
            got = KernelKMeans(4, n_init=2, tol=0.01, random_state=0, memory_limit=limit).fit(X)
            same(got, want)
            np.testing.assert_array_equal(got.predict(X), want.labels_, err_msg=name)


def test_threads_and_workers_give_the_same_bits(blobs, small_blocks, client, monkeypatch):
    # A start that leaves a cluster empty takes the path of relocation too.
    init = np.vstack([blobs[:8], np.full((1, 6), 1e3)])
    starts = [{"n_init": 2, "random_state": 0}, {"init": init}]
    here = [KernelKMeans(9, **start).fit(blobs) for start in starts]  # first: workers load what this has compiled
    fitted = [KernelKMeans(9, client=client, **start).fit(blobs) for start in starts]
    for threads in (1, 3):
        monkeypatch.setattr(
            Session, "find", classmethod(lambda cls, client, threads=threads, **how: cls(threads=threads))
        )
        fitted += [KernelKMeans(9, **start).fit(blobs) for start in starts]
    for number, got in enumerate(fitted):
        same(got, here[number % 2])


@pytest.mark.exhaustive
def test_cluster_reads_every_kind_of_input(blobs, small_blocks, client, tmp_path):
    drawn, given = {"n_init": 2, "random_state": 0, "tol": 0.01}, {"init": blobs[:4], "tol": 0.01}
    want = {id(start): KernelKMeans(4, **start).fit(blobs) for start in (drawn, given)}
    for name, X in inputs(blobs, tmp_path).items():
        start = drawn if name in ("zarr", "learner of dask") else given  # drawing centers takes the most passes
        same(KernelKMeans(4, client=client, **start).fit(X), want[id(start)])


def test_size_of_blocks_does_not_matter(blobs, monkeypatch):
    results = []
    for size in (10_000, 50_000, 10**6):
        monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", size)
        results.append(KernelKMeans(9, random_state=0).fit(blobs))
    for got in results[1:]:
        np.testing.assert_array_equal(got.labels_, results[0].labels_)
        np.testing.assert_allclose(got.inertia_, results[0].inertia_, rtol=1e-10)
        np.testing.assert_allclose(got.cluster_centers_, results[0].cluster_centers_, rtol=1e-10)


def test_sparse_rows_give_the_clusters_of_dense_rows(blobs):
    X = np.where(np.abs(blobs) > 3, blobs, 0)
    dense = KernelKMeans(5, init=X[:5]).fit(X)
    for form in (sp.csr_array(X), sp.csc_matrix(X)):
        got = KernelKMeans(5, init=X[:5]).fit(form)
        np.testing.assert_array_equal(got.labels_, dense.labels_)
        np.testing.assert_allclose(got.inertia_, dense.inertia_, rtol=1e-10)
        np.testing.assert_array_equal(got.predict(form), got.labels_)


def test_inertia_is_no_worse_than_scikit_learns():
    X = load_digits().data
    seeds = range(5)
    ours = [KernelKMeans(10, n_init=5, random_state=seed).fit(X).inertia_ for seed in seeds]
    theirs = [KMeans(10, n_init=5, random_state=seed).fit(X).inertia_ for seed in seeds]
    assert np.median(ours) <= np.median(theirs) * 1.002
    assert min(ours) <= min(theirs) * 1.002


def test_seeding_is_as_good_as_scikit_learns(blobs, small_blocks, monkeypatch):
    """The potential after greedy k-means++ has the same distribution; room for memos changes no bit."""
    problem = KMeansProblem(RowBlocks(blobs, Session(threads=2)))
    streams = [[np.random.RandomState(seed) for seed in range(60)] for _ in range(2)]
    relative = plus_plus(problem, 9, streams[0])
    monkeypatch.setattr(RowBlocks, "keeps", lambda self, bytes_per_row: False)
    np.testing.assert_array_equal(plus_plus(problem, 9, streams[1]), relative)
    ours = relative + blobs.mean(axis=0)
    theirs = [kmeans_plusplus(blobs, 9, random_state=seed)[0] for seed in range(60)]
    distances = [[((blobs[:, None] - c) ** 2).sum(axis=2) for c in centers] for centers in (ours, theirs)]
    potentials = np.array([[each.min(axis=1).sum() for each in side] for side in distances])
    noise = np.hypot(*potentials.std(axis=1)) / np.sqrt(60)
    assert abs(potentials[0].mean() - potentials[1].mean()) < 3 * noise
    # Every center is a row.
    assert max(each.min(axis=0).max() for each in distances[0]) < 1e-20


def test_empty_clusters_move_to_the_farthest_rows(small_blocks):
    X = np.concatenate([np.zeros((500, 2)), np.ones((500, 2)), [[50.0, 50.0]]]) + 0.0
    X[:1000] += np.random.default_rng(0).normal(scale=0.01, size=(1000, 2))
    init = np.array([[0.0, 0.0], [1.0, 1.0], [-900.0, 0.0], [-901.0, 0.0]])
    got = KernelKMeans(3, init=init[:3]).fit(X)
    want = KMeans(3, init=init[:3], n_init=1).fit(X)
    np.testing.assert_array_equal(got.labels_, want.labels_)
    np.testing.assert_allclose(got.inertia_, want.inertia_, rtol=1e-10)
    assert (got.labels_ == 2).sum() == 1
    assert set(KernelKMeans(4, init=init).fit(X).labels_) == {0, 1, 2, 3}


@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_fewer_distinct_rows_than_clusters(init):
    X = np.repeat([[0.1, 0.2], [3.3, 1.7], [-5.1, 2.9]], 7, axis=0)
    with pytest.warns(ConvergenceWarning, match="3 distinct clusters found"):
        got = KernelKMeans(5, init=init, n_init=4, random_state=0).fit(X)
    assert adjusted_rand_score(got.labels_, np.repeat([0, 1, 2], 7)) == 1
    assert got.inertia_ < 1e-25
    with pytest.warns(ConvergenceWarning, match="1 distinct"):
        KernelKMeans(2, random_state=0).fit(np.full((10, 3), 0.1))


def test_as_many_clusters_as_rows(blobs):
    got = KernelKMeans(12, random_state=0).fit(blobs[:12])
    assert sorted(got.labels_) == list(range(12))
    assert got.inertia_ == pytest.approx(0, abs=1e-20)


def test_random_state(blobs):
    def fit(state, **params):
        return KernelKMeans(9, n_init=2, random_state=state, **params).fit(blobs)

    same(fit(3), fit(3))
    same(fit(np.random.RandomState(3)), fit(3))
    assert fit(3).inertia_ != fit(4).inertia_
    fit(None)
    # The second of two starts is the same whatever the first: more starts never end worse.
    inertias = [KernelKMeans(9, n_init=n_init, random_state=5).fit(blobs).inertia_ for n_init in (1, 3, 6)]
    assert inertias == sorted(inertias, reverse=True)


def test_what_is_refused(blobs, tmp_path):
    def fails(text, X=blobs, error=InputError, **params):
        with pytest.raises(error, match=text):
            KernelKMeans(**params).fit(X)

    fails("fewer samples than clusters", blobs[:7])
    fails("fewer samples than clusters", da.from_array(blobs[:7]))
    for value, text in [(np.nan, "contains NaN"), (np.inf, "contains infinity")]:
        broken = blobs.copy()
        broken[777, 2] = value
        fails(text, broken)
        fails(rf"X\[777, 2\]: Input X {text}", da.from_array(broken))
        broken_file = zarr.create_array(str(tmp_path / f"{value}.zarr"), data=broken)
        fails(rf"X\[777, 2\]: Input X {text}", broken_file)
        with pytest.raises(InputError, match=r"X\[777, 2\]"):
            KernelKMeans(random_state=0).fit(blobs).predict(broken_file)
    fails("a value is so large that distances overflow", da.from_array(blobs * 1e200))
    fails("eigenvalue of -2; wanted a kernel matrix", np.diag([1.0, -2.0, 3.0]), n_clusters=2, kernel="precomputed")
    fails("not symmetric", np.arange(9.0).reshape(3, 3), n_clusters=2, kernel="precomputed")
    fails("must be square", blobs, kernel="precomputed")
    fails("memory_limit", blobs, MemoryBudgetError, kernel="rbf", memory_limit="100 MB")
    fails("own kernel", Learner(blobs), kernel="rbf")
    fails("not a fitted learner", KMeans())
    fails("not starting centers", init=blobs[:3])
    for name, value in [
        ("n_clusters", 0), ("n_clusters", 2.5), ("n_init", 0), ("max_iter", 0), ("tol", -1.0), ("init", "best"),
        ("kernel", "rfb"), ("memory_limit", "much"),
    ]:  # fmt: skip
        fails(name, **{name: value})
    with pytest.raises(NotFittedError):
        KernelKMeans().predict(blobs)
    with pytest.raises(InputError, match="X has 3 features, but KernelKMeans is expecting 6"):
        KernelKMeans(random_state=0).fit(blobs).predict(da.from_array(blobs[:, :3]))


def test_verbose_shows_centers_and_iterations(blobs, capsys):
    fitted = KernelKMeans(3, n_init=2, verbose=1, random_state=0).fit(blobs)
    told = capsys.readouterr()
    assert "k-means++ 3/3" in told.err and f"k-means {fitted.result_.history[-1]['iteration']}" in told.err
    assert "starts still moving" in told.err and told.out == ""


def test_callbacks_see_the_history(blobs):
    seen = []
    fitted = KernelKMeans(4, n_init=3, random_state=0, callbacks=[seen.append, lambda row: "no truth"]).fit(blobs)
    assert seen == fitted.result_.history and fitted.result_.outcome.converged
    of = [row["iteration"] for row in seen if row["stage"] == "k-means++"]
    assert of == [1, 2, 3, 4] and [row["iteration"] for row in seen[4:]] == list(range(1, len(seen) - 3))
    assert seen[-1]["moving"] == 0 and fitted.n_iter_ <= seen[-1]["iteration"]
    plain = KernelKMeans(4, n_init=3, random_state=0).fit(blobs)
    np.testing.assert_array_equal(plain.labels_, fitted.labels_)
    with pytest.raises(InputError, match="callbacks"):
        KernelKMeans(4, callbacks=3).fit(blobs)


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("at", [1, 3, 5, 6])
def test_stopped_it_has_the_centers_so_far(blobs, init, at):
    """Without a warning: a callback asked for it."""
    seen = []

    def stop(row):
        seen.append(row)
        return len(seen) == at

    fitted = KernelKMeans(5, n_init=2, tol=0.0, init=init, random_state=0, callbacks=stop).fit(blobs)
    assert seen == fitted.result_.history and len(seen) <= at
    if len(seen) == at:
        assert fitted.result_.outcome in (Outcome.STOPPED, Outcome.SOLVED)
        assert fitted.n_iter_ == max(row["iteration"] if row["stage"] == "k-means" else 0 for row in seen)
    labels = fitted.predict(blobs)
    np.testing.assert_array_equal(labels, fitted.labels_)
    assert fitted.inertia_ == pytest.approx(np.sum((blobs - fitted.cluster_centers_[labels]) ** 2))


def test_survives_clone_and_pickle(blobs, client):
    fitted = KernelKMeans(3, client=client, random_state=0).fit(blobs)
    assert clone(fitted).client is client
    again = pickle.loads(pickle.dumps(fitted))
    assert again.client is None
    assert fitted.client is client
    np.testing.assert_array_equal(again.predict(blobs), again.labels_)


@pytest.mark.parametrize("gamma", [1e-2, 1e-8, 1e-14, 1e-16])
def test_clusters_under_a_kernel_that_is_all_but_constant(gamma, rng):
    y = np.arange(24) % 3
    X = rng.standard_normal((24, 2)) + 20 * np.eye(3, 2)[y]
    fitted = KernelKMeans(3, kernel="rbf", gamma=gamma, random_state=0).fit(X)
    assert adjusted_rand_score(y, fitted.labels_) == 1.0
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    K = kernel("rbf", exact(X), exact(X), gamma)
    inertia = sum(K[i, i] for i in range(24)) - sum(K[np.ix_(y == k, y == k)].sum() / (y == k).sum() for k in range(3))
    # Entries near 1 are rounded to 1e-16, distances in a cluster are of 2 gamma |x - z|^2, 8 gamma on average, and 192 of them are
    # summed: 1e-16 / (8 gamma sqrt(192)), ten times over.
    assert fitted.inertia_ == pytest.approx(float(inertia), rel=1e-9 + 1e-17 / gamma)

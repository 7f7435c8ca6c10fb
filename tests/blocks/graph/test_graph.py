"""build_graph against scikit-learn and dense loops; the same bits from every form of X, block size and worker."""

import tracemalloc

import dask.array
import numpy as np
import pytest
import zarr
from repeats import but_for
from scipy.sparse import csc_array, csgraph, csr_array, csr_matrix
from sklearn.neighbors import kneighbors_graph

from dkl.blocks.graph.neighbor_graph import Graph, _way, build_graph, graph_of
from dkl.blocks.graph.neighbor_search import plan_graph
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import DataWarning, InputError, MemoryBudgetError
from dkl.linalg.graph.graph_parts import spanning_edges
from dkl.linalg.graph.laplacian import laplacian_of

HERE = Session(threads=2)


@pytest.fixture
def X(rng):
    return rng.standard_normal((300, 12))


def reference(X, k, normed=True):
    """(L, sigma) from scikit-learn's graph of distances, dense."""
    D = kneighbors_graph(X, k, mode="distance").toarray()
    sigma = kneighbors_graph(X, 10, mode="distance").sum() / len(X) / 10 / 2
    W = np.where(D > 0, np.exp(-(D**2) / (2 * sigma**2)), 0)
    return csgraph.laplacian(np.maximum(W, W.T), normed=normed), sigma


def same(a: Graph, b: Graph) -> bool:
    parts = ("data", "indices", "indptr")
    return (
        np.array_equal(a.similarity.widths, b.similarity.widths)
        and a.n_duplicates == b.n_duplicates
        and all(np.array_equal(getattr(a.laplacian, part), getattr(b.laplacian, part)) for part in parts)
    )


def adult_like(rng, n=600):
    return csr_array((rng.random((n, 123)) < 0.11).astype(float))


@pytest.mark.parametrize("k", [3, 10, 25])
@pytest.mark.parametrize("laplacian", ["normalized", "unnormalized"])
@pytest.mark.parametrize("n_features", [4, 12])
def test_agrees_with_scikit_learn(X, k, laplacian, n_features):
    X = X[:, :n_features]
    graph = build_graph(X, n_neighbors=k, laplacian=laplacian, session=HERE)
    expected, sigma = reference(X, k, laplacian == "normalized")
    np.testing.assert_allclose(graph.laplacian.toarray(), expected, atol=1e-11)
    assert graph.sigma == pytest.approx(sigma)
    assert (graph.kind, graph.n_neighbors, graph.recall) == (laplacian, k, None)
    assert graph.method == ("tree" if n_features == 4 else "brute")
    assert graph.laplacian.has_canonical_format
    assert abs(graph.laplacian - graph.laplacian.T).nnz == 0
    assert np.linalg.eigvalsh(graph.laplacian.toarray())[0] > -1e-12


def test_sigma_may_be_given(X):
    graph = build_graph(X, sigma=3, session=HERE)
    assert graph.sigma == 3.0
    assert np.exp(-(np.linalg.norm(X[0] - X, axis=1)[1:].min() ** 2) / 18) > 0
    own = kneighbors_graph(X, 10, mode="distance").toarray()
    own = np.where(own > 0, np.exp(-(own**2) / 18), 0)
    np.testing.assert_allclose(graph.laplacian.toarray(), laplacian_of(np.maximum(own, own.T)).toarray(), atol=1e-11)


def test_two_patterns():
    graph = build_graph(np.array([[0.0], [2.0]]), n_neighbors=1, session=HERE)
    assert graph.sigma == 1.0
    np.testing.assert_allclose(graph.laplacian.toarray(), [[1, -1], [-1, 1]])


def forms(X, tmp_path):
    """`X` in every form that is read."""
    np.save(tmp_path / "X.npy", X)
    mapped = np.memmap(tmp_path / "X.raw", dtype=X.dtype, mode="w+", shape=(len(X) + 7, X.shape[1]))
    mapped[7:] = X
    mapped.flush()
    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(70, 5), dtype=X.dtype)
    stored[:] = X
    return {
        "fortran": np.asfortranarray(X),
        "list": X.tolist(),
        "path": tmp_path / "X.npy",
        "memmap": mapped[7:],
        "zarr": stored,
        "path of zarr": tmp_path / "X.zarr",
        "dask": dask.array.from_array(X, chunks=(70, 5)),
        "csr_array": csr_array(X),
        "csr_matrix": csr_matrix(X),
        "csc": csc_array(X),
    }


@pytest.mark.parametrize("n_features", [5, 12])
def test_every_form_of_x_gives_the_same_bits(X, tmp_path, n_features):
    X = X[:, :n_features].copy()
    graph = build_graph(X, session=HERE)
    for name, form in forms(X, tmp_path).items():
        form = np.asarray(form) if name == "list" else form
        assert same(build_graph(form, session=HERE), graph), name


def test_single_precision_and_integers(X, rng):
    single = X.astype(np.float32)
    assert same(build_graph(single, session=HERE), build_graph(single.astype(np.float64), session=HERE))
    pixels = rng.integers(0, 256, (100, 9), dtype=np.uint8)
    assert same(build_graph(pixels, session=HERE), build_graph(pixels.astype(np.float64), session=HERE))


@pytest.mark.parametrize("sigma", ["average", "local", "kth"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "tree"])
def test_block_sizes_and_threads_do_not_show(rng, monkeypatch, kind, sigma):
    X = adult_like(rng) if kind == "sparse" else np.round(rng.standard_normal((600, 4 if kind == "tree" else 10)), 1)
    whole = build_graph(X, n_neighbors=15, sigma=sigma, session=Session(threads=1))
    monkeypatch.setattr("dkl.blocks.graph.neighbor_search.SPAN", 64)
    for threads in (1, 3):
        assert same(build_graph(X, n_neighbors=15, sigma=sigma, session=Session(threads=threads)), whole)
    tight = build_graph(X, n_neighbors=15, sigma=sigma, session=Session(threads=2), memory_limit=10**7)
    assert same(tight, whole)


def test_adult_like_rows(rng):
    X = adult_like(rng)
    graph = build_graph(X, n_neighbors=50, session=HERE)
    dense = X.toarray()
    d2 = ((dense[:, None] - dense[None]) ** 2).sum(axis=2)
    np.fill_diagonal(d2, np.inf)
    nearest = np.argsort(d2, axis=1, kind="stable")  # ties by number
    sigma = np.sqrt(np.take_along_axis(d2, nearest[:, :10], axis=1)).mean() / 2
    assert graph.sigma == pytest.approx(sigma, rel=1e-14)
    W = np.zeros((600, 600))
    rows = np.arange(600)[:, None]
    W[rows, nearest[:, :50]] = np.exp(-d2[rows, nearest[:, :50]] / (2 * sigma**2))
    expected = csgraph.laplacian(np.maximum(W, W.T), normed=True)
    np.testing.assert_allclose(graph.laplacian.toarray(), expected, atol=1e-12)


def test_duplicates_are_neighbours_of_each_other(rng):
    X = np.repeat(rng.standard_normal((30, 12)), 3, axis=0)
    X[3] *= -0.0  # 0.0 and -0.0 are one value
    X[4:6] = 0.0
    graph = build_graph(X, n_neighbors=2, sigma=1e-3, laplacian="unnormalized", session=HERE)
    assert graph.n_duplicates == 60
    L = graph.laplacian.toarray()
    assert (np.diag(L)[6:] == 2).all()
    assert L[6, 7] == -1


def test_all_duplicates():
    graph = build_graph(np.ones((30, 12)), n_neighbors=4, session=HERE)
    assert (graph.sigma, graph.n_duplicates) == (0.0, 29)
    assert np.isfinite(graph.laplacian.data).all()
    assert graph.n_components == 1  # all have row 0 among the first four, by number


def test_components_are_described(rng):
    X = rng.standard_normal((90, 10))
    X[60:] += 100
    graph = build_graph(X, n_neighbors=5, session=HERE)
    assert graph.n_components == 2
    assert np.array_equal(graph.component_sizes, [60, 30])
    text = graph.describe()
    for part in ("90 patterns", "2 components (60, 30 rows)", "brute search", "5-nearest"):
        assert part in text
    assert f"{int((graph.laplacian.toarray() < 0).sum() / 2)} edges" in text


def test_local_widths_join_what_one_width_cuts_off(rng):
    """Far rows, a tight group of them, two scales and duplicates: with every weight in [1/e, 1] no row is nearly isolated."""
    X = rng.standard_normal((200, 5))
    X[:7] = 100 + 1e-3 * X[:7]
    X[7], X[8:60], X[60:80] = 1e6, 1e-6 * X[8:60], X[60]
    graph = build_graph(X, n_neighbors=8, sigma="local", laplacian="unnormalized", session=HERE)
    assert (-graph.laplacian.data[graph.laplacian.data < 0]).min() >= np.exp(-1.0)
    assert graph.laplacian.diagonal().min() >= 8 / np.e * (1 - 1e-12)
    assert "sigma local, median" in graph.describe()
    assert graph.similarity.widths[7] > 1e6 * np.sqrt(5) * 0.99 and graph.similarity.widths[60] == 0


@pytest.mark.parametrize("n_features", [4, 12])
def test_local_widths_are_distances_to_the_last_neighbour(X, n_features):
    X = X[:, :n_features]
    graph = build_graph(X, n_neighbors=6, sigma="local", sharpness=3.0, laplacian="unnormalized", session=HERE)
    D = kneighbors_graph(X, 6, mode="distance").toarray()
    s = D.max(axis=1)
    np.testing.assert_allclose(graph.similarity.widths, s, rtol=1e-9)
    D = np.maximum(D, D.T)
    W = np.where(D > 0, np.exp(-3 * (D / np.maximum(s[:, None], s)) ** 2), 0.0)
    np.testing.assert_allclose(graph.laplacian.toarray(), csgraph.laplacian(W), atol=1e-9)


def test_rows_that_one_width_cuts_off_warn_with_the_least_width_that_joins_them(rng):
    X = rng.standard_normal((60, 4))
    X[10:13] += 40.0  # with weights of 1e-20 and less, yet connected by name
    with pytest.warns(DataWarning, match="sigma=5 cuts 3 of 60 rows from the others .*first: row 10") as caught:
        build_graph(X, sigma=5.0, session=HERE)
    least = float(str(caught[0].message).rsplit(" ", 1)[1])
    build_graph(X, sigma=1.01 * least, session=HERE)
    with pytest.warns(DataWarning, match="cuts 3 of 60"):
        build_graph(X, sigma=0.8 * least, session=HERE)
    build_graph(X, sigma="local", session=HERE)
    build_graph(X, sigma=5.0, warns_of_cuts=False, session=HERE)


def test_given_affinities_that_all_but_cut_rows_off_warn():
    W = np.ones((20, 20))
    W[:4, 4:] = W[4:, :4] = 1e-13
    for kind in ("normalized", "unnormalized"):
        with pytest.warns(DataWarning, match="the affinity cuts 4 of 20 rows from the others .*first: row 0"):
            graph_of(W, kind)
    W[:4, 4:] = W[4:, :4] = 0.0
    assert graph_of(W).n_components == 2


def test_isolated_patterns_warn(rng):
    X = rng.standard_normal((60, 10))
    X[17] += 1e6
    with pytest.warns(DataWarning, match="1 of 60 patterns are isolated.*row 17"):
        graph = build_graph(X, sigma=1.0, warns_of_cuts=False, session=HERE)
    assert np.array_equal(graph.isolated, [17])
    assert not graph.laplacian.toarray()[17].any()
    assert graph.component_sizes[-1] == 1
    assert "1 isolated" in graph.describe()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
@pytest.mark.parametrize("form", [np.asarray, csr_array, lambda X: dask.array.from_array(X, chunks=100)])
def test_values_refused_with_their_place(X, value, form):
    X[250, 3] = value
    X[299, 1] = np.nan
    with pytest.raises(InputError, match=r"X\[250, 3\]"):
        build_graph(form(X), session=HERE)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"n_neighbors": 300}, "n_neighbors"),
        ({"n_neighbors": 2.0}, "n_neighbors"),
        ({"n_neighbors": True}, "n_neighbors"),
        ({"sigma": 0}, "sigma"),
        ({"sigma": np.nan}, "sigma"),
        ({"sigma": "silverman"}, "sigma"),
        ({"laplacian": "random-walk"}, "laplacian"),
        ({"method": "annoy"}, "method"),
        ({"memory_limit": "lots"}, "memory_limit"),
    ],
)
def test_arguments_refused(X, options, where):
    with pytest.raises(InputError, match=where):
        build_graph(X, session=HERE, **options)


@pytest.mark.parametrize("X", [np.zeros(5), np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((4, 2), complex)])
def test_matrices_refused(X):
    with pytest.raises(InputError):
        build_graph(X, n_neighbors=1, session=HERE)


def test_plan_refuses_before_anything_is_read():
    class Unread:
        shape, dtype = (10**7, 20), np.dtype(np.float64)

        def __getitem__(self, rows):
            raise AssertionError

    with pytest.raises(MemoryBudgetError, match="memory_limit 1 GB.*wanted.*raise memory_limit"):
        build_graph(Unread(), memory_limit="1 GB", method="exact", session=HERE)


def test_plan_is_bytes_of_the_shapes_alone():
    plan = plan_graph(100_000, 10, 8, 10, 10**9, n_slots=2, n_tasks=2)
    assert all(isinstance(count, int) and count >= 0 for count in plan.values())
    assert plan["peak"] == max(plan["search"], plan["check"], plan["assembly"]) <= 10**9
    assert plan["blocks"] == 2 * plan["block"]
    tight = plan_graph(100_000, 100, 8, 10, 14 * 10**7, n_slots=2, n_tasks=2, chunk_rows=300)
    assert tight["reference_rows"] % 300 == 0
    assert tight["peak"] <= 14 * 10**7
    assert tight["query_rows"] < 50_000
    assert plan_graph(10**6, 100, 8, 10, None, index="ivf")["index"] > 10**6 * 400


@pytest.mark.parametrize(
    "kind",
    but_for(["dense", "sparse", "zarr", "many neighbors"], ["dense", "tree", "sparse", "zarr", "many neighbors"]),
)
def test_peak_stays_under_the_plan(rng, tmp_path, kind):
    n = 12_000
    k = 40 if kind == "many neighbors" else 10
    X = rng.standard_normal((n, 6 if kind == "tree" else 30)).astype(np.float32)
    if kind == "sparse":
        X = csr_array(X * (rng.random(X.shape) < 0.2))
    elif kind == "zarr":
        X = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(500, 30), dtype=X.dtype)
        X[:] = rng.standard_normal(X.shape)
    else:
        np.save(tmp_path / "X.npy", X)
        X = tmp_path / "X.npy"
    limit = 3 * 10**7 if k == 10 else 11 * 10**7
    _, plan = _way(row_source(X), k, "exact", limit, HERE)
    build_graph(rng.standard_normal((100, 9)), session=HERE)  # what is compiled and imported once
    tracemalloc.start()
    build_graph(X, n_neighbors=k, memory_limit=limit, session=HERE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0.4 * plan["peak"] < peak <= plan["peak"], f"{peak / plan['peak']:.2f} of the plan {plan}"


@pytest.mark.parametrize("form", [np.asarray, csr_array])
def test_joining_stays_under_the_plan(rng, form):
    n, d = 1500, 200
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    X[::3, :10] += 30.0
    X = form(X)
    _, plan = _way(row_source(X), 10, "exact", None, HERE, is_joined=True)
    options = {"n_neighbors": 10, "sigma": "local", "joined_above": 1, "session": HERE}
    with pytest.warns(DataWarning, match="had 2 components"):
        build_graph(X, **options)  # what is compiled and imported once
    tracemalloc.start()
    with pytest.warns(DataWarning, match="had 2 components"):
        build_graph(X, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= plan["peak"], f"{peak / plan['peak']:.2f} of the plan {plan}"
    spent = []

    def measured(rows, labels):
        tracemalloc.start()
        found = spanning_edges(rows, labels)
        spent.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        return found

    measured(X, (np.arange(n) % 3 == 0).astype(np.int32))
    assert 0.1 * plan["joining"] < spent[0] <= plan["joining"], f"{spent[0] / plan['joining']:.2f} of the plan {plan}"


def test_on_a_cluster(client, X, tmp_path):
    session = Session.find(client)
    graph = build_graph(X, session=HERE)
    for name, form in forms(X, tmp_path).items():
        form = np.asarray(form) if name == "list" else form
        assert same(build_graph(form, session=session), graph), name
    memory = zarr.create_array(zarr.storage.MemoryStore(), shape=X.shape, chunks=(70, 5), dtype=X.dtype)
    memory[:] = X
    assert same(build_graph(memory, session=session), graph)
    local = build_graph(X, sigma="local", session=HERE)
    assert same(build_graph(X, sigma="local", session=session), local)
    persisted = client.persist(dask.array.from_array(X, chunks=(70, 5)))
    assert same(build_graph(persisted, session=session), graph)
    low = build_graph(X[:, :4], session=HERE)
    assert same(build_graph(X[:, :4], session=session), low)
    X[250, 3] = np.nan
    with pytest.raises(InputError, match=r"X\[250, 3\]"):
        build_graph(X, session=session)


def clusters(rng, n=4000, n_features=10):
    return rng.standard_normal((n, n_features)) + 4 * rng.standard_normal((20, n_features))[rng.integers(0, 20, n)]


@pytest.mark.parametrize("kind", ["dense", "sparse", "duplicates"])
def test_approximate_is_close_to_exact(rng, kind):
    pytest.importorskip("faiss")
    X = clusters(rng)
    if kind == "sparse":
        X = csr_array(np.maximum(X, 0))
    elif kind == "duplicates":
        X[1000:1200] = X[0]
    exact = build_graph(X, method="exact", session=HERE)
    graph = build_graph(X, method="approximate", session=HERE)
    assert graph.method == "approximate"
    assert graph.recall >= 0.99
    assert graph.sigma == pytest.approx(exact.sigma, rel=1e-3)
    assert graph.n_duplicates == exact.n_duplicates
    shared = abs(graph.laplacian.sign() - exact.laplacian.sign()).nnz / exact.laplacian.nnz
    assert shared < (0.2 if kind == "duplicates" else 0.02)  # among equals, faiss chooses otherwise
    assert abs(graph.laplacian - graph.laplacian.T).nnz == 0


def test_approximate_does_not_depend_on_threads_or_limits(rng):
    pytest.importorskip("faiss")
    X = clusters(rng)
    graph = build_graph(X, method="approximate", session=Session(threads=1))
    assert same(build_graph(X, method="approximate", session=Session(threads=3)), graph)
    assert same(build_graph(X, method="approximate", memory_limit="30 MB", session=HERE), graph)


def test_approximate_on_a_cluster(rng, client):
    pytest.importorskip("faiss")
    X = clusters(rng)
    graph = build_graph(X, method="approximate", session=HERE)
    assert same(build_graph(X, method="approximate", session=Session.find(client)), graph)


def test_auto_approximates_many_rows_where_it_pays(rng, monkeypatch, caplog):
    pytest.importorskip("faiss")
    monkeypatch.setattr("dkl.blocks.graph.neighbor_graph._EXACT_UP_TO", 1000)
    X = clusters(rng, 6000)
    assert build_graph(X, session=HERE).method == "approximate"
    hard = rng.standard_normal((6000, 60))
    assert build_graph(hard, session=HERE).method == "brute"
    assert build_graph(X, session=HERE, memory_limit="8 MB").method == "brute"
    monkeypatch.setattr("dkl.linalg.graph.neighbors_ivf.faiss_available", lambda: False)
    assert not caplog.messages
    assert build_graph(X, session=HERE).method == "brute"
    assert caplog.messages == ["faiss is missing: each of 6,000 rows is compared with all; pip install 'dkl[knn]'"]
    with pytest.raises(InputError, match=r"pip install 'dkl\[knn\]'"):
        build_graph(X, method="approximate", session=HERE)


def test_low_recall_warns(rng, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr("dkl.blocks.graph.neighbor_search.RECALL_WANTED", 1.1)
    with pytest.warns(DataWarning, match="recall"):
        assert build_graph(clusters(rng, 500), method="approximate", session=HERE).recall > 0.99

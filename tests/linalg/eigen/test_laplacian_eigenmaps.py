"""The smoothest eigenvectors, by every method, against LAPACK."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import eigsh, splu
from scipy.spatial import cKDTree

from dkl.linalg.eigen import laplacian_eigenmaps
from dkl.linalg.eigen.laplacian_eigenmaps import factor_work, filter_work, graph_levels, smoothest


def ring(n, parts=1):
    """The Laplacian of `parts` rings of n patterns with a long chord each."""
    W = np.zeros((n * parts, n * parts))
    for part in range(parts):
        i = part * n + np.arange(n)
        W[i, np.roll(i, 1)] = W[np.roll(i, 1), i] = 1.0
        W[i[0], i[n // 3]] = W[i[n // 3], i[0]] = 0.5
    return sparse.csr_array(np.diag(W.sum(axis=0)) - W)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("method", ["dense", "shift-invert", "foreseen", "filter"])
def test_every_method_finds_them(method, parts, monkeypatch):
    monkeypatch.setattr(laplacian_eigenmaps, "DENSE", 600 if method == "dense" else 10)
    monkeypatch.setattr(laplacian_eigenmaps, "GAUGES", (20, 40))
    # Bytes of a whole factor, of less than one, of none.
    monkeypatch.setattr(laplacian_eigenmaps, "FILL", {"foreseen": 60_000, "filter": 0}.get(method, 2**20))
    method = "shift-invert" if method == "foreseen" else method
    L, count = ring(90 // parts, parts), 7 if parts == 1 else 9
    found = smoothest(L, count)
    values, vectors = np.linalg.eigh(L.toarray())
    assert found.method == method and found.residual <= 1e-8
    np.testing.assert_allclose(found.values, values[:count], atol=1e-7)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(count), atol=1e-12)
    # The next one lies apart, so the subspace is one.
    assert values[count] - values[count - 1] > 1e-4
    outside = found.vectors - vectors[:, :count] @ (vectors[:, :count].T @ found.vectors)
    assert np.abs(outside).max() < 1e-5
    assert (np.take_along_axis(found.vectors, np.abs(found.vectors).argmax(axis=0)[None], 0) > 0).all()


def test_as_many_as_there_are_are_found():
    found = smoothest(ring(12), 12)
    assert found.method == "dense" and found.vectors.shape == (12, 12) and found.residual < 1e-14


@pytest.mark.parametrize("kind", ["plane", "expander"])
def test_a_factor_s_size_is_foreseen(kind, rng, monkeypatch):
    monkeypatch.setattr(laplacian_eigenmaps, "GAUGES", (200, 400))
    n = 1600
    if kind == "plane":
        path = sparse.diags_array([np.ones(39), np.ones(39)], offsets=[-1, 1])
        W = sparse.kron(path, sparse.eye_array(40)) + sparse.kron(sparse.eye_array(40), path)
    else:
        i, j = rng.integers(0, n, (2, 5 * n))
        W = sparse.coo_array((np.ones(5 * n), (i, j)), shape=(n, n))
        W = ((W + W.T) > 0).astype(float)
        W = sparse.csr_array(W - sparse.diags_array(W.diagonal()))
    L = sparse.csr_array(sparse.diags_array(W.sum(axis=0)) - W)
    numbers = splu(sparse.csc_array(L + 1e-3 * sparse.eye_array(n)), permc_spec="MMD_AT_PLUS_A").L.nnz
    assert 0.3 < laplacian_eigenmaps.factor_bytes(L) / (laplacian_eigenmaps.NUMBER * numbers) < 3


def neighbor_laplacian(X, k=10):
    """The normalized Laplacian of the k-nearest-neighbor graph, edges 1."""
    n = len(X)
    found = cKDTree(X).query(X, k + 1)[1][:, 1:]
    W = sparse.coo_array((np.ones(found.size), (np.repeat(np.arange(n), k), found.ravel())), shape=(n, n))
    return normalized(((W + W.T) > 0).astype(float))


def normalized(W):
    degrees = sparse.diags_array(1 / np.sqrt(np.asarray(W.sum(axis=0)).ravel()))
    return sparse.csr_array(sparse.eye_array(W.shape[0]) - degrees @ W @ degrees)


def weak_clusters(rng, parts, size):
    """Gaussians in 10 dimensions, each joined to the next by one edge of weight 0.01 or so."""
    W = sparse.block_diag(
        [abs(neighbor_laplacian(rng.standard_normal((size, 10)))) for _ in range(parts)], format="lil"
    )
    W.setdiag(0.0)
    for at in size * np.arange(1, parts):
        W[at - size, at] = W[at, at - size] = 1e-3 * (1 + rng.random())
    return normalized(sparse.csr_array(W))


def check_against_scipy(L, found, count):
    """Eigenvalues, and the subspace where the next eigenvalue lies apart, by scipy's Lanczos on 2 - L, without a factor."""
    values, vectors = eigsh(2 * sparse.eye_array(L.shape[0]) - L, count + 1, which="LA", v0=np.ones(L.shape[0]))
    values, vectors = 2 - values[::-1], vectors[:, ::-1]
    np.testing.assert_allclose(found.values, values[:count], atol=1e-9)
    assert found.residual <= 1e-8
    gap = values[count] - values[count - 1]
    outside = vectors[:, :count] - found.vectors @ (found.vectors.T @ vectors[:, :count])
    assert np.linalg.norm(outside, 2) <= 2 * count**0.5 * found.residual * 2 / gap + 1e-10


@pytest.mark.parametrize("n", [9_000, pytest.param(11_000, marks=pytest.mark.exhaustive)])
def test_rows_in_ten_dimensions_are_filtered_and_no_factor_is_tried(n, rng, monkeypatch):
    """A factor of these has 0.2 n^2 entries and takes a hundred times as long; seeing that from one of a part takes ten times."""
    monkeypatch.setattr(laplacian_eigenmaps, "splu", None)
    L = neighbor_laplacian(rng.standard_normal((n, 10)))
    found = smoothest(L, 10)
    assert found.method == "filter"
    check_against_scipy(L, found, 10)


@pytest.mark.parametrize("kind", ["chain", "circle", "plane"])
def test_long_graphs_are_factored(kind, rng):
    """The filter takes twice to ten times as long for chains; for planes of 30,000 rows either takes half a second."""
    n = 1500
    turn = 2 * np.pi * rng.random(n)
    X = {
        "chain": lambda: rng.random((n, 1)),
        "circle": lambda: np.column_stack([np.cos(turn), np.sin(turn)]),
        "plane": lambda: rng.random((n, 2)) * [20, 1],
    }[kind]()
    L = neighbor_laplacian(X)
    found = smoothest(L, 6)
    values = np.linalg.eigvalsh(L.toarray())[:6]
    assert found.method == "shift-invert" and found.residual <= 1e-12
    np.testing.assert_allclose(found.values, values, atol=1e-12)


def test_clusters_that_are_nearly_apart_are_handed_over_to_a_factor(rng, monkeypatch):
    """30 eigenvalues next to 0, of which 10 are asked for: no filter tells them apart in 60 passes."""
    L = weak_clusters(rng, 30, 100)
    real, made = laplacian_eigenmaps._filtered, []

    def noted(*given):
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr(laplacian_eigenmaps, "_filtered", noted)
    found = smoothest(L, 10)
    assert found.method == "shift-invert" and made == [None] and found.residual <= 1e-12
    values = eigsh(L, 10, sigma=-1e-3, return_eigenvectors=False)
    np.testing.assert_allclose(found.values, np.sort(values), atol=1e-12)
    monkeypatch.setattr(laplacian_eigenmaps, "FILL", 0)
    monkeypatch.setattr(laplacian_eigenmaps, "PASSES", 8)
    assert smoothest(L, 10).method == "filter"  # no factor is allowed


@pytest.mark.parametrize("restarts", [1, 200])
def test_many_components_do_not_hold_up_lanczos(restarts, monkeypatch):
    """0 is an eigenvalue as often as there are components. Where Lanczos does not end the filter is taken."""
    monkeypatch.setattr(laplacian_eigenmaps, "RESTARTS", restarts)
    L = normalized(sparse.block_diag([abs(ring(30)) - sparse.diags_array(ring(30).diagonal()) for _ in range(40)]))
    monkeypatch.setattr(laplacian_eigenmaps, "filter_work", lambda *_: np.inf)  # a factor, first
    found = smoothest(L, 8)
    np.testing.assert_allclose(found.values, 0, atol=1e-12)
    assert found.residual <= 1e-8 and (found.method == "filter" or restarts > 1)
    assert np.abs(found.vectors.T @ found.vectors - np.eye(8)).max() < 1e-12


def path(n):
    return sparse.diags_array([np.full(n, 2.0), np.ones(n - 1), np.ones(n - 1)], offsets=[0, -1, 1])


def test_a_path_has_a_level_a_row_and_names_do_not_matter(rng):
    names = rng.permutation(40)
    for matrix in (path(40), sparse.csr_array(path(40))[names][:, names]):
        levels = graph_levels(sparse.csr_array(matrix))
        assert (levels.parts, levels.depth, levels.cubes) == (1, 39, 1.0)
        assert levels.strips == pytest.approx(40)


def test_a_complete_graph_has_one_level_of_all_rows():
    levels = graph_levels(sparse.csr_array(np.ones((30, 30))))
    assert (levels.parts, levels.depth) == (1, 1) and levels.cubes == pytest.approx(29**3)


def test_parts_are_counted_and_the_deepest_is_as_deep():
    matrix = sparse.csr_array(sparse.block_diag([path(5), path(9), sparse.csr_array((3, 3)), sparse.eye_array(2)]))
    levels = graph_levels(matrix)
    assert (levels.parts, levels.depth) == (7, 8)
    assert graph_levels(sparse.csr_array((4, 4))).parts == 4


def test_depth_is_the_filter_s_work_and_width_the_factor_s():
    """A strip of 20 x 400 and a square of 90 x 89 grid points have as many rows and entries, to a hundredth."""
    strip, square = (
        sparse.csr_array(sparse.kron(path(a), sparse.eye_array(b)) + sparse.kron(sparse.eye_array(a), path(b)))
        for a, b in ((400, 20), (90, 89))
    )
    one, other = graph_levels(strip), graph_levels(square)
    assert filter_work(one, strip.nnz, 16) > 1.5 * filter_work(other, square.nnz, 16)
    assert factor_work(one, strip.shape[0], strip.nnz, 10) < factor_work(other, square.shape[0], square.nnz, 10)

"""A kernel matrix by its products: held, or made anew on threads or on workers, against the dense matrix."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from on_workers import deadly
from repeats import but_for
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels

from dkl.blocks.kernels.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.rows import row_blocks
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.kernels import packed_symmetric
from dkl.linalg.kernels.kernel_columns import Kernel

N, D = 600, 4
KERNELS = {
    "rbf": (Kernel("rbf", 0.3), {"gamma": 0.3}),
    "linear": (Kernel("linear"), {}),
    "poly": (Kernel("poly", 0.5, 2, 1.0), {"gamma": 0.5, "degree": 2, "coef0": 1.0}),
    "laplacian": (Kernel("laplacian", 0.2), {"gamma": 0.2}),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks even of few rows."""
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 20_000)


def dense(name, X):
    return pairwise_kernels(X, metric=name, **KERNELS[name][1])


def check(operator, K, rng):
    """Every question that a solver asks, against the dense matrix."""
    n, scale = len(K), np.abs(K).max()
    assert operator.n == n
    for rows in (slice(0, n // 3), slice(n // 2, n // 2 + n // 4)):  # fewer rows, and others
        v = np.zeros(n)
        v[rows] = 1.0
        assert_allclose(operator.times(v), K @ v, rtol=0, atol=1e-12 * n * scale)
    for share in (1.0, 0.3, 0.29, 0.01, 0.6):  # supports that shrink, stay within another, and grow
        v = np.where(np.arange(n) < share * n, rng.standard_normal(n), 0.0)
        assert_allclose(operator.times(v), K @ v, rtol=0, atol=1e-12 * n * scale)
    assert_array_equal(operator.times(np.zeros(n)), np.zeros(n))
    chosen = np.sort(rng.choice(n, 37, replace=False))
    assert_allclose(operator.columns(chosen), K[:, chosen], atol=1e-12 * scale)
    assert_allclose(operator.block(chosen), K[np.ix_(chosen, chosen)], atol=1e-12 * scale)
    assert_allclose(operator.diagonal(), K.diagonal(), atol=1e-12 * scale)
    part = operator.sub(chosen)
    v = rng.standard_normal(37)
    assert_allclose(part.times(v), K[np.ix_(chosen, chosen)] @ v, atol=1e-12 * n * scale)
    assert_allclose(part.block(np.arange(5)), K[np.ix_(chosen[:5], chosen[:5])], atol=1e-12 * scale)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_in_memory(name, threads, rng, monkeypatch):
    monkeypatch.setattr(packed_symmetric, "LEAST_TILES_FOR_THREADS", 2)
    X = rng.standard_normal((N, D))
    check(MemoryKernel.of(KERNELS[name][0], row_source(X), threads=threads), dense(name, X), rng)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("threads", [1, 2])
def test_made_anew(name, threads, rng):
    X = rng.standard_normal((N, D))
    check(RecomputedKernel(KERNELS[name][0], X, Session(None, threads=threads)), dense(name, X), rng)


@pytest.mark.parametrize("made", but_for(["dense", "precomputed"], ["dense", "sparse", "precomputed"]))
def test_made_anew_on_workers(made, client, rng):
    X = rng.standard_normal((1200, D)) * (rng.random((1200, D)) < 0.5)
    K = dense("rbf", X)
    rows = {"dense": X, "sparse": sparse.csr_array(X), "precomputed": K}[made]
    kernel = Kernel("precomputed") if made == "precomputed" else KERNELS["rbf"][0]
    check(RecomputedKernel(kernel, rows, Session(client)), K, rng)


def test_sparse_rows(rng):
    X = rng.standard_normal((N, 30)) * (rng.random((N, 30)) < 0.1)
    K = dense("rbf", X)
    check(MemoryKernel.of(KERNELS["rbf"][0], row_source(sparse.csr_array(X))), K, rng)
    check(RecomputedKernel(KERNELS["rbf"][0], sparse.csc_array(X), Session(None, threads=2)), K, rng)


def test_precomputed(rng):
    K = dense("rbf", rng.standard_normal((N, D)))
    check(MemoryKernel.of(Kernel("precomputed"), row_source(K)), K, rng)
    check(RecomputedKernel(Kernel("precomputed"), K, Session(None, threads=2)), K, rng)


def test_what_is_held_gives_products_their_bits(rng):
    """Points of an earlier product that are ready go into the next one's sums: they come with a state."""
    X = rng.standard_normal((N, D))

    def made():
        return RecomputedKernel(KERNELS["rbf"][0], X, Session(None, threads=1), part_dtype=np.float32)

    wide, narrow = rng.standard_normal(N), rng.standard_normal(N)
    narrow[::10] = 0.0
    for product in (RecomputedKernel.times, RecomputedKernel.roughly):
        first, later = made(), made()
        assert first.held[1] == "" and not len(first.held[0])
        product(first, wide)
        rows, dtype = first.held
        assert len(rows) == N and dtype == ("float64" if product is RecomputedKernel.times else "float32")
        later.times(narrow)
        later.hold(rows, dtype)
        assert_array_equal(product(later, narrow), product(first, narrow))
        assert len(later.held[0]) == N  # and not those of `narrow` alone
        later.hold(*made().held)
        assert later.held[1] == ""


def test_same_bits_wherever_it_is_made(client, rng):
    X, v = rng.standard_normal((1200, D)), rng.standard_normal(1200)
    sessions = [Session(None, threads=1), Session(None, threads=2), Session(client)]
    first, *others = [RecomputedKernel(KERNELS["rbf"][0], X, session).times(v) for session in sessions]
    for other in others:
        assert_array_equal(other, first)


@pytest.mark.parametrize("made", ["held", "anew"])
def test_single_precision(made, rng):
    X = rng.standard_normal((N, D))
    kernel, K = KERNELS["rbf"][0], dense("rbf", X)
    if made == "held":
        operator = MemoryKernel.of(kernel, row_source(X), np.float32)
        assert operator.packed.tiles.dtype == np.float32
    else:
        operator = RecomputedKernel(kernel, X, Session(None), dtype=np.float32)
    v = np.abs(rng.standard_normal(N))
    assert_allclose(operator.times(v), K @ v, rtol=1e-5)
    assert np.abs(operator.times(v) - K @ v).max() > 0
    assert_allclose(operator.sub(np.arange(50)).times(v[:50]), K[:50, :50] @ v[:50], rtol=1e-5)


def test_products_are_counted(rng):
    X, v = rng.standard_normal((60, D)), rng.standard_normal(60)
    held = MemoryKernel.of(Kernel("linear"), row_source(X))
    anew = RecomputedKernel(Kernel("linear"), X, Session(None))
    for operator in (held, anew):
        for _ in range(3):
            operator.times(v)
        assert operator.products == 3


def test_an_asymmetric_matrix_is_no_kernel(rng):
    K = dense("rbf", rng.standard_normal((N, D)))
    K[500, 3] += 0.01
    with pytest.raises(InputError, match=r"not symmetric; got X\[500, 3\] = .* and X\[3, 500\] = "):
        MemoryKernel.of(Kernel("precomputed"), row_source(K))


def test_a_worker_is_lost_in_a_product(tmp_path, rng, monkeypatch):
    """Its rows are sent anew elsewhere, and the product has the same bits."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 4_000)
    X, v, mark = rng.standard_normal((150, D)), rng.standard_normal(150), tmp_path / "mark"
    X[100, 0] = 13
    mark.touch()  # nobody dies here
    kernel = Kernel(deadly, params={"gamma": 0.3, "mark": mark})
    wanted = RecomputedKernel(kernel, X, Session(None, threads=1)).times(v)
    assert_allclose(wanted, dense("rbf", X) @ v, atol=1e-10)
    mark.unlink()
    local = LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    )  # fmt: skip
    with local, Client(local) as own:
        operator = RecomputedKernel(kernel, X, Session(own))
        assert_array_equal(operator.times(v), wanted)
        assert mark.exists()
        assert_array_equal(operator.times(v), wanted)


def test_a_rough_product_leaves_the_next_one_exact(rng):
    """Points that are kept in single precision are not those of a product in double."""
    X, v = rng.standard_normal((300, 3)), rng.standard_normal(300)
    K = pairwise_kernels(X, metric="rbf", gamma=0.3)
    kernel = RecomputedKernel(Kernel("rbf", 0.3), X, Session(None, threads=1), part_dtype=np.float32)
    assert 1e-9 < np.abs(kernel.roughly(v) - K @ v).max() < 1e-3
    assert_allclose(kernel.times(v), K @ v, atol=1e-11)

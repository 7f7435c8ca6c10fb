"""Passes over rows: every kind of input gives the same blocks, every number of threads and workers the same bits."""

import threading
import time
import tracemalloc

import dask.array as da
import numpy as np
import on_workers
import pytest
import scipy.sparse as sp
import zarr
from distributed.comm import CommClosedError
from on_workers import Foreign, describe, describe_sparse, die_once, fail, gram, plus, remember, sum_of
from patience import PATIENCE
from threadpoolctl import threadpool_info

from dkl.blocks.rows import row_blocks
from dkl.blocks.rows.row_blocks import RowBlocks, row_bounds
from dkl.blocks.rows.row_sources import bytes_of_rows
from dkl.blocks.session import Session
from dkl.blocks.workers import waiting, worker_checks
from dkl.blocks.workers.worker_checks import RequiredPaths, bytes_of, look
from dkl.errors import InputError, MemoryBudgetError, WorkersLostError
from dkl.io.paths import ObjectPath
from dkl.resources import one_blas_thread

N, R = 3000, 5


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that small data has many."""
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 30_000)


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, R))


def inputs(X, folder):
    """X in every form that is taken."""
    np.save(folder / "x.npy", X)
    stored = zarr.create_array(str(folder / "x.zarr"), data=X, chunks=(700, 2))
    memory = zarr.create_array(zarr.storage.MemoryStore(), data=X, chunks=(700, R))
    raw = np.memmap(folder / "x.raw", X.dtype, "w+", 80, X.shape, "F")
    raw[:] = X
    raw.flush()
    return {
        "ndarray": X,
        "fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=0)[::2],
        "npy path": str(folder / "x.npy"),
        "memmap": np.load(folder / "x.npy", mmap_mode="r"),
        "raw memmap": raw,
        "memmap view": np.memmap(folder / "x.npy", X.dtype, "r", 128, X.shape)[0:],
        "zarr": stored,
        "zarr path": folder / "x.zarr",
        "zarr in memory": memory,
        "dask": da.from_array(X, chunks=(450, 3)),
        "foreign": Foreign(X),
    }


def test_bounds_follow_from_the_size_alone(monkeypatch):
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 2 * 10**6)
    for n, row_bytes in [(1, 8), (3, 10**9), (10**4, 8), (11_220, 2200), (10**6, 256), (10**8, 800)]:
        bounds = row_bounds(n, row_bytes)
        sizes = [stop - start for start, stop in bounds]
        assert [start for start, _ in bounds[1:]] == [stop for _, stop in bounds[:-1]]
        assert (bounds[0][0], bounds[-1][1]) == (0, n)
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1
        assert len(bounds) & (len(bounds) - 1) == 0
        assert max(sizes) * row_bytes <= max(16.1e6, 2 * row_bytes)
    assert len(row_bounds(11_220, 2200)) == 16
    assert [len(row_bounds(11_220, 2200, least)) for least in (701, 702, 6000)] == [16, 8, 1]


def test_every_kind_of_input_gives_the_same_blocks(X, tmp_path):
    want = [(k, start, stop, X[start:stop].sum(), True) for k, (start, stop) in enumerate(row_bounds(N, R * 8))]
    assert len(want) == 16
    for name, form in inputs(X, tmp_path).items():
        rows = RowBlocks(form, Session(threads=2))
        assert rows.map(describe) == want, name
        # Stored rows that may not be kept are read anew in each pass.
        rows.budget = 1
        assert rows.map(describe) == want, name


def test_dtypes(X):
    for given, worked in [("f2", "f4"), ("f4", "f4"), ("f8", "f8"), ("i4", "f8"), ("?", "f8")]:
        rows = RowBlocks(X.astype(given), Session(threads=1))
        assert rows.dtype == worked
        assert rows.map(lambda block: block.rows.dtype)[0] == worked
    with pytest.raises(InputError, match="real numbers"):
        RowBlocks(X.astype(complex), Session())
    with pytest.raises(InputError, match="real numbers"):
        RowBlocks(X.astype(str), Session())


def test_sparse_rows_stay_sparse(X):
    for form in (sp.csr_array(X), sp.csc_matrix(X)):
        rows = RowBlocks(form, Session(threads=2))
        parts = rows.map(describe_sparse)
        assert rows.is_sparse
        assert {name for name, _ in parts} == {"csr_array"}
        np.testing.assert_allclose(sum(part for _, part in parts), X.sum())


def test_what_is_refused(X, tmp_path):
    def fails(form, text):
        with pytest.raises(InputError, match=text):
            RowBlocks(form, Session())

    fails([[1.0, 2.0]], "not an array")
    fails(X[0], "2-d")
    fails(X[:0], "no rows")
    fails(X[:, :0], "no rows or no columns")
    fails(tmp_path / "none.npy", "no such file")
    fails(tmp_path / "none.zarr", "cannot open")
    (tmp_path / "text.npy").write_text("no array")
    fails(tmp_path / "text.npy", "cannot be read")


def test_sum_has_the_same_bits_on_any_threads(X):
    results = [RowBlocks(X, Session(threads=threads)).sum(gram) for threads in (1, 2, 5)]
    for total, count in results:
        assert count == N
        np.testing.assert_allclose(total, X.T @ X, rtol=1e-12)
        np.testing.assert_array_equal(total, results[0][0])


def test_only_some_blocks(X):
    rows = RowBlocks(X, Session(threads=2))
    assert [part[0] for part in rows.map(describe, only={9, 2})] == [2, 9]
    assert rows.map(describe, only=set()) == []


def test_memo_lives_from_pass_to_pass(X):
    rows = RowBlocks(X, Session(threads=2))
    assert set(rows.map(remember)) == {0}
    assert set(rows.map(remember)) == {1}
    rows.forget()
    assert set(rows.map(remember)) == {0}


def test_errors_come_through(X):
    with pytest.raises(InputError, match="row 0: bad rows"):
        RowBlocks(X, Session(threads=2)).map(fail)


def test_memory_limit(X, tmp_path):
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=X, chunks=(50, R))
    with pytest.raises(MemoryBudgetError, match="memory_limit 10 kB"):
        RowBlocks(stored, Session(), "10 kB")
    assert RowBlocks(X, Session(), "10 kB").keeps(1)
    assert not RowBlocks(X, Session(), "10 kB").keeps(8)
    kept, read_anew = RowBlocks(stored, Session(), "1 MB"), RowBlocks(stored, Session(), "60 kB")
    assert kept.map(describe) == read_anew.map(describe)
    assert kept._items[0].source.is_in_memory
    assert not read_anew._items[0].source.is_in_memory


def test_chunks_are_read_once_a_pass(X, tmp_path, monkeypatch):
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=X, chunks=(700, R))
    reads = []
    original = zarr.Array.__getitem__

    def counted(self, rows):
        reads.append((rows.start, rows.stop))
        return original(self, rows)

    rows = RowBlocks(stored, Session(threads=2), "100 kB")
    assert not rows._holds_copies
    monkeypatch.setattr(zarr.Array, "__getitem__", counted)
    rows.map(describe)
    assert reads == [(0, 700), (700, 1400), (1400, 2100), (2100, 2800), (2800, 3000)]


@pytest.mark.parametrize("form", ["zarr", "foreign"])
def test_peak_memory_is_under_the_limit(rng, tmp_path, monkeypatch, form):
    """A pass over 30 MB of rows that are read, under a limit of 12 MB."""
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 2 * 10**6)
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=(60_000, 64), chunks=(1000, 64), dtype="f8")
    stored[:] = rng.standard_normal(stored.shape)
    rows = RowBlocks(stored if form == "zarr" else Foreign(stored), Session(threads=2), "12 MB")
    tracemalloc.start()
    try:
        rows.sum(gram)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 2 * 10**6 < peak < 12 * 10**6


def test_threads_hold_few_blocks(X):
    """Never more blocks are read ahead than threads + 1."""
    held, most, lock = [0], [0], threading.Lock()

    class Counted(Foreign):
        def __getitem__(self, rows):
            with lock:
                held[0] += 1
                most[0] = max(most[0], held[0])
            return super().__getitem__(rows)

    def release(block):
        with lock:
            held[0] -= 1

    RowBlocks(Counted(X), Session(threads=3)).map(release)
    assert held == [0]
    assert most[0] <= 5


def test_blas_limit_nests_and_is_lifted():
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    before = threads()
    with one_blas_thread():
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == before


def test_cluster_gives_the_same_bits(X, tmp_path, client):
    session = Session(client)
    local = RowBlocks(X, Session(threads=2))
    want, (want_gram, _) = local.map(describe, 2.0), local.sum(gram)
    for name, form in inputs(X, tmp_path).items():
        rows = RowBlocks(form, session)
        assert rows.map(describe, 2.0) == want, name
        np.testing.assert_array_equal(rows.sum(gram)[0], want_gram, err_msg=name)
        assert [part[0] for part in rows.map(describe, only={9, 2})] == [2, 9], name
    sparse = RowBlocks(sp.csr_array(X), session).map(describe_sparse)
    assert sparse == RowBlocks(sp.csr_array(X), Session(threads=1)).map(describe_sparse)
    with pytest.raises(InputError, match="bad rows"):
        rows.map(fail)


def test_workers_read_from_a_store_by_themselves(X, tmp_path, client, bucket):
    """They have what reaching it takes in their environment; what they are sent is an address."""
    client.run(on_workers.set_environment, bucket.environment)
    zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(101, R), dtype="f8")[...] = X
    np.save(tmp_path / "X.npy", X)
    bucket.upload(tmp_path / "X.zarr", tmp_path / "X.npy")
    want = RowBlocks(X, Session(threads=2)).map(describe, 2.0)
    for name in ("X.zarr", "X.npy"):
        rows = RowBlocks(bucket / name, Session(client))
        assert rows.map(describe, 2.0) == want, name
    seen = client.run(look, RequiredPaths({bucket / "X.zarr": bytes_of(ObjectPath(bucket / "X.zarr"))}))
    assert [one.amiss for one in seen.values()] == [None, None]
    gone = bucket / "gone.npy"
    assert worker_checks._amiss(RequiredPaths({gone: 1})) == (gone, "not to be read there", "no such object")


def test_cluster_keeps_memos_and_sends_rows_once(X, client):
    rows = RowBlocks(X, Session(client))
    assert [set(rows.map(remember)) for _ in range(3)] == [{0}, {1}, {2}]
    futures = list(rows._items)
    rows.map(describe)
    assert len(futures) == 2
    assert all(now is before for now, before in zip(rows._items, futures, strict=True))


def test_cluster_takes_rows_beyond_its_budget_in_small_pieces(X, client):
    rows = RowBlocks(X, Session(client), "40 kB")
    assert len(rows._ranges) == 12
    assert rows.map(describe) == RowBlocks(X, Session(threads=1)).map(describe)


def test_cluster_takes_large_arguments(X, client):
    array = np.arange(200_000.0)
    assert RowBlocks(X, Session(client)).map(plus, array) == list(range(16))


def scale(cluster, client, n_workers):
    cluster.scale(n_workers)
    while len(Session(client).workers()) != n_workers:
        time.sleep(0.05)


@pytest.mark.parametrize("error", [CommClosedError("Stream is closed"), KeyError("tcp://127.0.0.1:1"), TimeoutError()])
@pytest.mark.parametrize("what", ["rows", "argument"])
def test_a_worker_that_dies_while_it_is_sent_to(what, error, X, client, monkeypatch):
    """Dask's own errors: of a connection closed by the other side, of the scheduler's copying, of a worker that hangs."""
    scatter, sent = client.scatter, []

    def broken(item, **how):
        sent.append(item)
        if len(sent) == (1 if what == "rows" else 3):
            raise error
        return scatter(item, **how)

    monkeypatch.setattr(client, "scatter", broken)
    monkeypatch.setattr(row_blocks, "LARGE_ARGUMENT", 1)
    blocks = RowBlocks(X, Session(client))
    assert blocks.map(plus, np.arange(100.0)) == list(range(len(blocks.bounds)))
    assert len(sent) > 3


def test_a_large_sparse_argument_is_sent_once(X, client, monkeypatch):
    """scipy's arrays have no `nbytes`: in each task they would be pickled once more."""
    scatter, sent = client.scatter, []

    def counted(item, **how):
        sent.append(item)
        return scatter(item, **how)

    points = sp.csr_array(np.eye(100))
    monkeypatch.setattr(client, "scatter", counted)
    monkeypatch.setattr(row_blocks, "LARGE_ARGUMENT", bytes_of_rows(points))
    blocks = RowBlocks(X, Session(client))
    assert blocks.map(sum_of, points) == blocks.map(sum_of, points) == [100.0] * len(blocks.bounds)
    assert sum(item is points for item in sent) == 1


@pytest.mark.exhaustive
def test_lost_rows_are_sent_again(X, tmp_path, monkeypatch):
    """Also when all workers are lost at once, as they are when the only one dies."""
    import dask
    from distributed import Client, LocalCluster

    with (
        # Else the cluster looks 15 s after the first loss whether that worker is back, and would let it go for good if
        # it happened to be starting anew from the second.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # the default port may be taken
        ) as cluster,  # fmt: skip
        Client(cluster) as client,
    ):
        want = RowBlocks(X, Session(threads=1)).map(describe)
        stored = zarr.create_array(str(tmp_path / "x.zarr"), data=X, chunks=(700, R))
        sent, read = RowBlocks(X, Session(client)), RowBlocks(stored, Session(client))
        # Two hold the same Dask array, and so futures of tasks with the same names.
        array = da.from_array(X, chunks=(450, R))
        made, held = RowBlocks(array, Session(client)), RowBlocks(array, Session(client))
        assert sent.map(describe) == read.map(describe) == made.map(describe) == held.map(describe) == want
        client.restart_workers(Session(client).workers()[:1], timeout=PATIENCE)
        assert sent.map(describe) == want
        assert read.map(describe) == want
        # Both end up on the only worker, whose death sets their tasks aside.
        monkeypatch.setattr(waiting, "LOOK_AGAIN_SECONDS", 1.0)
        scale(cluster, client, 1)
        for k, rows in enumerate((sent, read, made)):
            assert rows.map(die_once, tmp_path / f"died{k}") == [part[3] for part in want]
        scale(cluster, client, 0)
        monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.5)
        with pytest.raises(WorkersLostError, match="no workers"):
            RowBlocks(X, Session(client)).map(describe)

"""Rows that are scaled as they are read: the same bytes from every kind of array, chunking and number of threads."""

import copy

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.preprocessing import StandardScaler
from small_blocks import make_small

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.standardize import column_moments, standardized
from dkl.linalg.rows.column_moments import ColumnScale

N, D = 400, 5


@pytest.fixture
def X(rng):
    return rng.standard_normal((N, D)) * [1, 1e3, 1, 1e-2, 5] + [0, 1e5, 3, 0, -1]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    make_small(monkeypatch.setattr)


class Foreign:
    """An array of a library that only this process knows."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, rows):
        return self.array[rows]


def kinds(X, folder):
    import dask.array as da

    np.save(folder / "X.npy", X)
    array = zarr.create_array(str(folder / "X.zarr"), shape=X.shape, chunks=(37, X.shape[1]), dtype=X.dtype)
    array[...] = X
    return {
        "memory": X,
        "npy": str(folder / "X.npy"),
        "map": np.load(folder / "X.npy", mmap_mode="r"),
        "zarr": str(folder / "X.zarr"),
        "dask": da.from_array(X, chunks=(53, 2)),
        "foreign": Foreign(X),
        "columns first": np.asfortranarray(X),
    }


def scaled(X, threads=1):
    source = row_source(X)
    scale = ColumnScale.of(column_moments(source, Session(None, threads=threads), None), centered=not source.is_sparse)
    return scale, standardized(source, scale)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_every_kind_of_array_gives_the_standard_scalers_rows_in_the_same_bytes(X, dtype, tmp_path):
    X = X.astype(dtype)
    first = None
    for name, given in kinds(X, tmp_path).items():
        for threads in (1, 3):
            scale, source = scaled(given, threads)
            rows = np.concatenate([source.read(lo, min(lo + 90, N)) for lo in range(0, N, 90)])
            first = first if first is not None else (scale, rows)
            assert np.array_equal(scale.means, first[0].means) and np.array_equal(scale.spreads, first[0].spreads), name
            assert rows.dtype == first[1].dtype == row_source(X).dtype and np.array_equal(rows, first[1]), name
            assert source.is_scaled and standardized(source, scale) is source
    np.testing.assert_allclose(first[1], StandardScaler().fit_transform(X), rtol=1e-4, atol=1e-4)


def test_a_users_array_is_not_written_to_and_a_runs_own_is(X):
    before = X.copy()
    scale, source = scaled(X)
    assert np.array_equal(X, before)
    own = standardized(RowSource(X, own_bytes=X.nbytes), scale)
    assert own.array is X and np.array_equal(X, source.array) and own.own_bytes == X.nbytes


def test_sparse_rows_stay_sparse(X):
    S = sp.csr_array(np.where(np.median(X, axis=0) < X, X, 0))
    scale, source = scaled(S)
    known = StandardScaler(with_mean=False).fit_transform(S)
    np.testing.assert_allclose(source.read(0, N).toarray(), known.toarray(), rtol=1e-12)


def test_workers_read_and_scale_rows_themselves(X, tmp_path, client):
    """Whatever a cluster adds up has the bits of this process alone."""
    expected = scaled(X)
    for name, given in kinds(X, tmp_path).items():
        source = row_source(given)
        scale = ColumnScale.of(column_moments(source, Session.find(client), None), centered=True)
        assert np.array_equal(scale.spreads, expected[0].spreads), name
        rows = RowBlocks(standardized(source, scale), Session.find(client)).take(np.arange(N))
        assert np.array_equal(rows, expected[1].array), name


def test_a_copy_for_another_thread_has_files_of_its_own(X, tmp_path):
    _, source = scaled(kinds(X, tmp_path)["zarr"])
    other = copy.copy(source.array)
    assert other.base is not source.array.base and np.array_equal(other.read(5, 50), source.array.read(5, 50))


def test_a_value_that_is_not_finite_is_named(X):
    X[300, 2] = np.nan
    with pytest.raises(InputError, match=r"X\[300, 2\]"):
        column_moments(row_source(X), Session(None, threads=1), None)

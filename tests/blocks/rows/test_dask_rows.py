"""Blocks of Dask's collections are looked at as they are read: what a collection says of itself does not decide what is right."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from on_workers import Foreign, describe, describe_sparse

from dkl.blocks.rows import row_blocks
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, InputTypeError
from dkl.estimators.base.standardize import standardized
from dkl.io.plain_arrays import in_memory
from dkl.linalg.rows.column_moments import ColumnScale

N, D = 600, 5
SPREADS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


@pytest.fixture
def X(rng):
    return np.round(rng.standard_normal((N, D)), 1) * (rng.random((N, D)) < 0.5)


def promised(rows, make, meta=None):
    """Two blocks that are delayed calls of `make`, of which the array says `meta`."""
    parts = [rows[:250], rows[250:]]
    said = {} if meta is None else {"meta": meta}
    return da.concatenate([da.from_delayed(dask.delayed(make)(part), part.shape, float, **said) for part in parts])


def read(source):
    found = source.read(0, source.n)
    assert sp.issparse(found) == source.is_sparse
    return found.toarray() if source.is_sparse else found


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.coo_array])
def test_sparse_blocks_are_read_as_sparse_rows(X, form):
    source = row_source(da.from_array(X, chunks=(130, 3)).map_blocks(form))
    assert source.is_sparse and not source.is_in_memory
    assert type(source.read(100, 300)) is sp.csr_array
    np.testing.assert_array_equal(source.read(100, 300).toarray(), X[100:300])
    assert source.entries == np.count_nonzero(X)
    scaled = standardized(source, ColumnScale(None, SPREADS))
    assert scaled.is_sparse
    np.testing.assert_array_equal(read(scaled), X / SPREADS)


def test_blocks_of_another_form_than_the_array_says(X):
    dense = row_source(promised(X, sp.csr_array))
    assert not dense.is_sparse
    np.testing.assert_array_equal(read(dense), X)
    np.testing.assert_array_equal(read(standardized(dense, ColumnScale(SPREADS, SPREADS))), (X - SPREADS) / SPREADS)
    sparse = row_source(promised(X, np.asarray, sp.csr_array((0, D))))
    assert sparse.is_sparse
    np.testing.assert_array_equal(read(sparse), X)
    single = row_source(promised(X, np.asarray, np.empty((0, 0), np.float32)))
    assert single.read(0, 4).dtype == single.dtype == np.float64  # dtype=float is what the array says


def test_passes_on_threads_and_on_workers(X, monkeypatch, client):
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 5_000)
    for form in (da.from_array(X, chunks=(130, 3)).map_blocks(sp.csr_array), promised(X, sp.csr_array)):
        for session in (Session(threads=2), Session.find(client)):
            rows = RowBlocks(form, session)
            assert len(rows.bounds) > 2
            look = describe_sparse if rows.is_sparse else describe
            assert sum(found[1 if rows.is_sparse else 3] for found in rows.map(look)) == pytest.approx(X.sum())
            np.testing.assert_array_equal(sp.csr_array(rows.take(np.array([7, 300]))).toarray(), X[[7, 300]])


@pytest.mark.parametrize("said", ["masked", "dense"])
def test_masked_values_are_refused_where_they_stand(X, said, client):
    masked = np.ma.array(X, mask=np.zeros(X.shape, bool))
    rows = da.from_array(masked, chunks=(130, 3)) if said == "masked" else promised(masked, np.ma.asarray)
    np.testing.assert_array_equal(read(row_source(rows)), X)  # the mask hides nothing
    masked[410, 3] = np.ma.masked
    rows = da.from_array(masked, chunks=(130, 3)) if said == "masked" else promised(masked, np.ma.asarray)
    with pytest.raises(InputError, match=r"^X\[410, 3\]: masked values"):
        row_source(rows).read(0, N)
    with pytest.raises(InputError, match=r"^X\[410, 3\]: masked values"):
        RowBlocks(rows, Session.find(client)).map(describe)


def test_slices_of_another_library_are_looked_at_too(X):
    with pytest.raises(InputError, match=r"^X\[102, 1\]: masked values"):
        row_source(Foreign(np.ma.array(X, mask=np.arange(X.size).reshape(X.shape) == 102 * D + 1))).read(100, 200)
    source = row_source(Foreign(sp.csr_array(X)))
    np.testing.assert_array_equal(source.read(10, 20), X[10:20])


REFUSED = {
    "text": (lambda X: promised(X.astype(str), np.asarray), "a block of dtype <U"),
    "complex": (lambda X: promised(X + 1j, np.asarray), "a block of dtype complex128"),
    "objects": (lambda X: promised(X.astype(object), np.asarray), "a block of dtype object"),
    "another shape": (lambda X: promised(X, np.transpose), r"got shape \(5, \d+\); wanted \(\d+, 5\)"),
    "object": (lambda X: da.from_array(X.astype(object), chunks=99), "dtype object"),
    "a column": (lambda X: da.from_array(X)[:, 0], "2-d; got 1 dimension;"),
    "a delayed": (lambda X: dask.delayed(X), "a promise of a value; got a Delayed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(X, case):
    make, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as caught:
        row_source(make(X)).read(0, N)
    assert "\n" not in str(caught.value)


def test_a_future_is_refused(X, client):
    with pytest.raises(InputTypeError, match="got a Future"):
        row_source(client.scatter(X))
    with pytest.raises(InputTypeError, match=r"got a list of Futures; wanted an array; .*client\.gather\(X\)"):
        row_source(client.scatter(list(X[:3])))


def test_sizes_that_are_not_known_are_counted_and_left_unknown_in_the_array(X):
    whole = da.from_array(X, chunks=(130, 3))
    some = whole[da.from_array(np.arange(N) % 3 > 0, chunks=130)]
    np.testing.assert_array_equal(read(row_source(some)), X[np.arange(N) % 3 > 0])
    assert np.isnan(some.shape[0])
    sparse = some.map_blocks(sp.csr_array, meta=sp.csr_array((0, D)))
    np.testing.assert_array_equal(read(row_source(sparse)), X[np.arange(N) % 3 > 0])


def test_labels_and_weights_of_dask(X):
    masked = promised(np.ma.array(X, mask=X > 2.5), np.ma.asarray)
    np.testing.assert_array_equal(in_memory(da.from_array(X, chunks=50), "y"), X)
    with pytest.raises(InputError, match="y.*masked values"):
        in_memory(masked, "y")
    with pytest.raises(InputTypeError, match="y: only a promise"):
        in_memory(dask.delayed(X), "y")


class TestFrames:
    """Of Dask, which needs pyarrow for them."""

    @pytest.fixture
    def frames(self):
        return pytest.importorskip("dask.dataframe", exc_type=ImportError)

    def test_partitions_are_the_blocks(self, frames, X):
        frame = pd.DataFrame(X, columns=list("abcde")).astype({"b": "int64", "c": "float32", "d": "Float64"})
        frame.loc[20, "d"] = pd.NA
        source = row_source(frames.from_pandas(frame, npartitions=4))
        assert source.dtype == np.float64 and source.rows_per_chunk < N
        np.testing.assert_array_equal(read(source), frame.to_numpy(float, na_value=np.nan))
        single = row_source(frames.from_pandas(frame[["c"]], npartitions=4))
        assert single.dtype == np.float32

    def test_what_is_refused(self, frames, X):
        frame = pd.DataFrame(X, columns=list("abcde"))
        for column in (frame["b"].astype(str), frame["b"].astype("category"), pd.to_datetime(frame["b"])):
            with pytest.raises(InputError, match=r"^X\['b'\]: not numbers; got dtype"):
                row_source(frames.from_pandas(frame.assign(b=column), npartitions=3))
        with pytest.raises(InputError, match="2-d; got 1 dimension"):
            row_source(frames.from_pandas(frame, npartitions=3)["a"])
        turned = frames.from_pandas(frame[list("bacde")], npartitions=3)
        lying = turned.map_partitions(pd.DataFrame.copy, meta=frame[:0], enforce_metadata=False)
        with pytest.raises(InputError, match="columns of a partition differ"):
            row_source(lying).read(0, N)

"""Kept columns and Gram rows: what is missing or damaged is never read as numbers."""

import numpy as np
import pytest

from dkl.errors import StoreError
from dkl.stores.kernels import (
    GramRows,
    column_sums,
    create_columns,
    create_gram,
    is_created,
    seal_columns,
    stored_columns,
    write_columns,
    write_gram,
)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_columns_round_trip(tmp_path, rng):
    C, path = rng.standard_normal((10, 4)), tmp_path / "columns"
    path.mkdir()
    assert not is_created(path)  # a crash left the folder alone
    create_columns(path, 10, 4, 4, "float64")
    assert is_created(path)
    for lo in (0, 8, 4):
        write_columns(path, lo, C[lo : lo + 4])
    seal_columns(path, column_sums(path, (0, 4, 8)))
    found = list(stored_columns(path))
    assert [lo for lo, _ in found] == [0, 4, 8]
    assert np.array_equal(np.concatenate([rows for _, rows in found]), C)


@pytest.mark.parametrize("spoil", [flip, lambda chunk: chunk.unlink()])
def test_a_chunk_of_columns_is_checked(spoil, tmp_path, rng):
    path = tmp_path / "columns"
    create_columns(path, 8, 4, 4, "float32")
    for lo in (0, 4):
        write_columns(path, lo, rng.standard_normal((4, 4)).astype(np.float32))
    seal_columns(path, column_sums(path, (0, 4)))
    spoil(next((path / "c" / "1").iterdir()))
    with pytest.raises(StoreError, match="rows from 4"):
        list(stored_columns(path))


def test_gram_rows(tmp_path, rng):
    path = tmp_path / "gram"
    with pytest.raises(StoreError, match="cannot be opened"):
        GramRows(path)
    B = rng.standard_normal((6, 6))
    create_gram(path, 6)
    with pytest.raises(StoreError, match="missing"):
        GramRows(path)[2:3]
    write_gram(path, 0, B)
    assert np.array_equal(GramRows(path)[2:4], B[2:4])
    flip(next(chunk for chunk in (path / "c").rglob("*") if chunk.is_file()))
    with pytest.raises(StoreError, match="cannot be read"):
        GramRows(path)[2:3]

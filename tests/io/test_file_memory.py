"""Readers ask for room before they allocate: by what headers claim, and by counting what is packed."""

import gzip

import numpy as np
import pytest

from dkl.errors import MemoryBudgetError
from dkl.io.array_files import read_array, read_labels, read_npz
from dkl.io.reading import SMALL, FileRoom, file_room
from dkl.side_information.loading import load_pairs

LARGE = SMALL // 8 + 1
"""Numbers that are beyond the room of SMALL bytes."""


@pytest.fixture
def narrow():
    with file_room(FileRoom(limit=1_000_000, base=900_000)):
        yield


def test_what_fits_is_read(narrow, tmp_path):
    np.savez(tmp_path / "X.npz", X=np.zeros((SMALL // 16, 1)))
    assert read_array(tmp_path / "X.npz").shape == (SMALL // 16, 1)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_beyond_the_room_are_refused(save, narrow, tmp_path):
    save(tmp_path / "X.npz", X=np.zeros(LARGE), y=np.zeros(3))
    assert len(read_npz(tmp_path / "X.npz", "y")["y"]) == 3
    for read in (read_npz, read_array, lambda path: read_npz(path, "X")):
        with pytest.raises(MemoryBudgetError, match=r"got memory_limit 1 MB; wanted at least 16\.9 MB"):
            read(tmp_path / "X.npz")


def test_files_of_labels_beyond_the_room_are_refused(narrow, tmp_path):
    np.save(tmp_path / "y.npy", np.zeros(LARGE))
    with pytest.raises(MemoryBudgetError, match="the array does not fit"):
        read_labels(tmp_path / "y.npy", LARGE)
    with gzip.open(tmp_path / "y.csv.gz", "wb", compresslevel=1) as file:
        file.write(b"a\n" * 100_000)
    with pytest.raises(MemoryBudgetError, match="the lines do not fit"):
        read_labels(tmp_path / "y.csv.gz", 100_000)


def test_pairs_beyond_the_room_are_refused(narrow, tmp_path):
    (tmp_path / "pairs.csv").write_bytes(b"0,1,must\n" * 100_000)
    np.savez_compressed(tmp_path / "pairs.npz", must_link=np.zeros((LARGE, 2), np.int64))
    for name in ("pairs.csv", "pairs.npz"):
        with pytest.raises(MemoryBudgetError, match="do(es)? not fit"):
            load_pairs(tmp_path / name)


def test_without_a_room_all_is_read(tmp_path):
    np.savez_compressed(tmp_path / "X.npz", X=np.zeros(LARGE))
    assert read_array(tmp_path / "X.npz").shape == (LARGE,)

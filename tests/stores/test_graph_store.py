"""Block CSR on disk: what is read is what was written, or an error; nothing that stood there is lost."""

import json
import shutil
from pathlib import Path

import google_crc32c
import numcodecs
import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

from dkl.errors import InputError, StoreError
from dkl.stores.graph import open_csr_blocks, read_csr, read_csr_rows, write_csr_blocks


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    dense = rng.random((103, 90)) * (rng.random((103, 90)) < 0.1)
    dense[40:60] = 0  # two blocks of ten without an entry
    return csr_array(dense)


@pytest.fixture(scope="module")
def written(matrix, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "graph.zarr"
    write_csr_blocks(path, matrix, 10, {"sigma": 0.5, "n_neighbors": 7, "laplacian": "normalized"})
    return path


@pytest.fixture
def store(tmp_path, written):
    """A copy to be damaged."""
    return Path(shutil.copytree(written, tmp_path / "graph.zarr"))


def equal(a, b):
    return a.shape == b.shape and all(
        np.array_equal(getattr(a, x), getattr(b, x)) for x in ("data", "indices", "indptr")
    )


@pytest.mark.parametrize(("rows", "rows_per_block"), [(12, 1), (103, 10), (103, 103), (103, 1000)])
def test_round_trip(tmp_path, matrix, rows, rows_per_block):
    matrix = matrix[:rows]
    write_csr_blocks(tmp_path / "g", matrix, rows_per_block)
    back = read_csr(tmp_path / "g")
    assert equal(back, matrix)
    assert isinstance(back, csr_array)
    assert back.dtype == np.float64
    assert back.has_sorted_indices


@pytest.mark.parametrize(("lo", "hi"), [(0, 103), (0, 1), (9, 11), (10, 20), (37, 62), (45, 55), (102, 103), (50, 50)])
def test_rows(store, matrix, lo, hi):
    assert np.array_equal(read_csr_rows(store, lo, hi).toarray(), matrix.toarray()[lo:hi])


@pytest.mark.parametrize(("lo", "hi"), [(-1, 5), (5, 104), (7, 6)])
def test_rows_out_of_range(store, lo, hi):
    with pytest.raises(InputError, match="rows out of range"):
        read_csr_rows(store, lo, hi)


def test_layout_is_plain_zarr(store, matrix):
    """Read with zarr and numpy alone, as another tool would."""
    group = zarr.open_group(store, mode="r")
    attrs = dict(group.attrs)
    assert (attrs["kind"], attrs["version"], attrs["shape"], attrs["nnz"]) == (
        "dkl.csr-blocks",
        1,
        [103, 90],
        matrix.nnz,
    )
    assert attrs["row_bounds"] == [*range(0, 103, 10), 103]
    assert (attrs["sigma"], attrs["n_neighbors"], attrs["laplacian"]) == (0.5, 7, "normalized")
    block = group["block_00003"]
    assert block.attrs["encoding-type"] == "csr_matrix"
    assert block.attrs["encoding-version"] == "0.1.0"
    assert block.attrs["shape"] == [10, 90]
    arrays = [block[name] for name in ("data", "indices", "indptr")]
    assert [str(array.dtype) for array in arrays] == ["float64", "int32", "int64"]
    for array in arrays:
        assert array.nchunks == 1
        assert any(type(codec).__name__ == "Crc32cCodec" for codec in array.compressors)
    assert np.array_equal(
        csr_array(tuple(array[:] for array in arrays), shape=(10, 90)).toarray(), matrix[30:40].toarray()
    )


def test_group_inside_another_store(tmp_path, matrix):
    root = zarr.open_group(tmp_path / "run", mode="a")
    write_csr_blocks(root.create_group("graph"), matrix, 50)
    assert equal(read_csr(zarr.open_group(tmp_path / "run", mode="r")["graph"]), matrix)


def test_unsorted_input_is_stored_sorted_and_left_alone(tmp_path):
    loose = csr_array((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    write_csr_blocks(tmp_path / "g", loose, 1)
    assert np.array_equal(read_csr(tmp_path / "g").toarray(), [[2, 0, 4]])
    assert np.array_equal(loose.indices, [2, 0, 2])


def test_attributes_of_numpy(tmp_path, matrix):
    write_csr_blocks(tmp_path / "g", matrix, 50, {"sigma": np.float64(2), "sizes": np.arange(3)})
    attrs = dict(open_csr_blocks(tmp_path / "g").attrs)
    assert (attrs["sigma"], attrs["sizes"]) == (2.0, [0, 1, 2])


@pytest.mark.parametrize("attrs", [{"kind": "mine"}, {"sigma": float("nan")}, {"f": object()}])
def test_attributes_refused_before_anything_is_written(tmp_path, matrix, attrs):
    with pytest.raises(InputError, match="attrs"):
        write_csr_blocks(tmp_path / "g", matrix, 50, attrs)
    assert not (tmp_path / "g").exists()


def test_bad_blocks_and_matrices_refused(tmp_path, matrix):
    with pytest.raises(InputError, match="rows_per_block"):
        write_csr_blocks(tmp_path / "g", matrix, 0)
    with pytest.raises(InputError, match="csr"):
        write_csr_blocks(tmp_path / "g", csr_array((0, 3)), 1)


def test_what_stands_there_is_left_alone(tmp_path, store, matrix):
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "thesis.txt").write_text("years of work")
    for target in (store, thesis, thesis / "thesis.txt", zarr.open_group(store, mode="r+")):
        with pytest.raises(StoreError):
            write_csr_blocks(target, matrix, 50)
    assert (thesis / "thesis.txt").read_text() == "years of work"
    assert equal(read_csr(store), matrix)


def test_no_store(tmp_path):
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(StoreError, match="no zarr v3 group"):
            read_csr(path)


def rewrite(path: Path, change) -> None:
    meta = json.loads(path.read_text())
    change(meta["attributes"])
    path.write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "change",
    [
        lambda attrs: attrs.pop("kind"),
        lambda attrs: attrs.update(kind="other"),
        lambda attrs: attrs.update(version=2),
        lambda attrs: attrs.update(shape=[103]),
        lambda attrs: attrs.update(shape=[103, -90]),
        lambda attrs: attrs.update(shape=[104, 90]),
        lambda attrs: attrs.update(shape="large"),
        lambda attrs: attrs.update(nnz=None),
        lambda attrs: attrs.update(nnz=attrs["nnz"] + 1),
        lambda attrs: attrs.update(row_bounds=[]),
        lambda attrs: attrs.update(row_bounds=[0, 50, 40, 103]),
        lambda attrs: attrs.update(row_bounds=[0, 103]),
        lambda attrs: attrs.update(row_bounds=[0, 10**12]),
    ],
)
def test_false_root_is_found(store, change):
    rewrite(store / "zarr.json", change)
    with pytest.raises(StoreError) as caught:
        read_csr(store)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda attrs: attrs.clear(),
        lambda attrs: attrs.update(shape=[10**12, 90]),
        lambda attrs: attrs.update(nnz=attrs["nnz"] - 1),
        lambda attrs: attrs.update({"encoding-type": "csc_matrix"}),
        lambda attrs: attrs["crc32"].update(indptr=0),
        lambda attrs: attrs.update(crc32=None),
    ],
)
def test_false_block_is_found(store, change):
    rewrite(store / "block_00002" / "zarr.json", change)
    with pytest.raises(StoreError, match="block_00002"):
        read_csr(store)


@pytest.mark.parametrize("name", ["data", "indices", "indptr"])
@pytest.mark.parametrize("damage", ["missing", "flipped", "truncated", "empty"])
def test_damaged_chunk_is_found(store, matrix, name, damage):
    (chunk,) = (store / "block_00002" / name / "c").iterdir()
    stored = bytearray(chunk.read_bytes())
    if damage == "missing":
        chunk.unlink()
    elif damage == "flipped":
        stored[len(stored) // 2] ^= 4
        chunk.write_bytes(stored)
    else:
        chunk.write_bytes(stored[: len(stored) // 2 if damage == "truncated" else 0])
    with pytest.raises(StoreError, match="block_00002") as caught:
        read_csr(store)
    assert "\n" not in str(caught.value)
    assert np.array_equal(read_csr_rows(store, 0, 20).toarray(), matrix.toarray()[:20])  # the others still read


@pytest.mark.parametrize("name", ["indices", "indptr"])
def test_a_chunk_that_unpacks_to_more_than_it_holds_is_not_unpacked(store, name):
    (chunk,) = (store / "block_00002" / name / "c").iterdir()
    packed = bytes(numcodecs.Zstd().encode(np.zeros(5_000_000, np.uint8)))
    chunk.write_bytes(packed + int(google_crc32c.value(packed)).to_bytes(4, "little"))
    with pytest.raises(StoreError, match=r"block_00002.* unpacks to"):
        read_csr(store)


def test_missing_block_and_array(store):
    for part in ("block_00001/data/zarr.json", "block_00003/zarr.json"):
        (store / part).unlink()
    for rows in ((10, 20), (30, 40)):
        with pytest.raises(StoreError, match="damaged or missing"):
            read_csr_rows(store, *rows)


def test_killed_write_is_not_taken_for_a_graph(tmp_path, matrix, monkeypatch):
    calls = []

    def dies(group, number, block):
        calls.append(number)
        if number == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("dkl.stores.graph._write_block", dies)
    with pytest.raises(KeyboardInterrupt):
        write_csr_blocks(tmp_path / "g", matrix, 10)
    assert calls == [0, 1, 2]
    with pytest.raises(StoreError, match="half written"):
        open_csr_blocks(tmp_path / "g")


@pytest.mark.parametrize(
    ("change", "message"), [("shape", "not what its block says"), ("dtype", "not what its block says")]
)
def test_false_array_is_not_read(store, change, message):
    path = store / "block_00002" / "data" / "zarr.json"
    meta = json.loads(path.read_text())
    if change == "shape":
        meta["shape"] = [10**13]
        meta["chunk_grid"]["configuration"]["chunk_shape"] = [10**13]
    else:
        meta["data_type"] = "float32"
    path.write_text(json.dumps(meta))
    with pytest.raises(StoreError, match=message):
        read_csr(store)


@pytest.mark.parametrize("name", ["indices", "indptr"])
@pytest.mark.parametrize("number", [2**64, -(2**200), "x", None, [0]])
def test_a_number_that_no_integer_type_holds_is_damage(store, name, number):
    path = store / "block_00002" / name / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fill_value": number}))
    with pytest.raises(StoreError, match="block_00002"):
        read_csr(store)

"""Chunks in each other's place, each of which is whole by itself: whoever reads them says so."""

import json
import shutil

import numpy as np
import pytest
from scipy.sparse import csr_array

from dkl.blocks.slabs.export import as_dask, compressed, exported_columns
from dkl.errors import StoreError
from dkl.stores import arrays, seals
from dkl.stores.checkpoints import CheckpointFolder
from dkl.stores.graph import read_csr, read_csr_rows, write_csr_blocks
from dkl.stores.kernels import (
    GramRows,
    column_sums,
    create_columns,
    create_gram,
    seal_columns,
    stored_columns,
    write_columns,
    write_gram,
)
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.run import RunStore
from dkl.stores.slab_arrays import SlabArray


@pytest.fixture
def run(tmp_path):
    made = RunStore.create(tmp_path / "run.zarr", {"task": "pairwise"})
    yield made
    made.close()


def swap(one, other):
    """Two files or folders, each under the other's name."""
    one.rename(aside := one.with_name("aside"))
    other.rename(one)
    aside.rename(other)


# -- the seal itself --------------------------------------------------------------------------------------------------


@pytest.fixture
def part(run, rng):
    """A result of five chunks, sealed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "CHUNK_BYTES", 8 * 3 * 10)
        run.write_factor(rng.standard_normal((47, 3)))
    return run.path / "factor"


def test_a_seal_is_made_of_four_bytes_a_chunk(part, monkeypatch):
    read = []
    pread = seals.os.pread
    monkeypatch.setattr(seals.os, "pread", lambda *call: read.append(call[1]) or pread(*call))
    seals.seal_folder(part, "factor")
    assert read == [4] * 5
    seals.check_folder(part, "factor")
    assert read == [4] * 10


@pytest.mark.parametrize("cheap", [True, False])
def test_each_damage_of_a_sealed_folder_is_seen(part, cheap):
    chunk = part / "c" / "2" / "0"
    content = chunk.read_bytes()
    flipped = bytes([content[0] ^ 1]) + content[1:]
    chunk.write_bytes(flipped)
    if cheap:  # what a reader of the chunk compares
        seals.check_folder(part, "factor")
    else:
        with pytest.raises(StoreError, match="does not match its bytes"):
            seals.check_folder(part, "factor", whole=True)
    for damage, message in (
        (lambda: chunk.write_bytes(content[:-1]), "cut short"),
        (chunk.unlink, "missing"),
        (lambda: chunk.write_bytes((part / "c" / "1" / "0").read_bytes()), "not the file that was written here"),
    ):
        damage()
        with pytest.raises(StoreError, match=message):
            seals.check_folder(part, "factor", whole=not cheap)
    chunk.write_bytes(content)
    seals.check_folder(part, "factor", whole=not cheap)
    with pytest.raises(StoreError, match="another's name"):
        seals.check_folder(part, "model")
    manifest = part / seals.MANIFEST
    manifest.write_text(manifest.read_text().replace("factor", "factxr"))
    with pytest.raises(StoreError, match="checksum"):
        seals.check_folder(part, "factor")
    manifest.unlink()
    with pytest.raises(StoreError, match="its seal is missing"):
        seals.check_folder(part, "factor")


# -- who reads --------------------------------------------------------------------------------------------------------


def test_swapped_chunks_of_a_factor(run, part):
    for read in (run.factor, lambda: as_dask(run), lambda: compressed(run, 2)):
        read()
        swap(part / "c" / "1", part / "c" / "3")
        with pytest.raises(StoreError, match="not the file that was written here"):
            read()
        swap(part / "c" / "1", part / "c" / "3")


def test_a_report_knows_the_parts_that_it_is_of(run, part, tmp_path, rng):
    run.write_pairs(np.ones((3, 2), np.int64), np.zeros((3, 2), np.int64))
    run.write_report({"outcome": "solved"}, np.ones(47))
    assert run.damages() == run.damages(whole=True) == {} and run.report() == {"outcome": "solved"}
    swap(run.path / "pairs" / "must_link", run.path / "pairs" / "cannot_link")
    assert list(run.damages()) == ["pairs"]
    with pytest.raises(StoreError, match="not the file|cut short"):
        run.read_pairs()
    swap(run.path / "pairs" / "must_link", run.path / "pairs" / "cannot_link")
    other = RunStore.create(tmp_path / "other.zarr", {"task": "pairwise"})
    other.write_factor(rng.standard_normal((47, 3)))
    other.close()
    shutil.rmtree(part)
    shutil.copytree(other.path / "factor", part)
    assert run.factor().shape == (47, 3) and "not the part that the report is of" in str(run.damages()["factor"])
    shutil.rmtree(part)
    assert list(run.damages()) == ["factor"]


def test_swapped_rows_of_a_gram_matrix(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("dkl.stores.kernels.GRAM_CHUNK_BYTES", 8 * 6 * 2)
    path, B = tmp_path / "gram", rng.standard_normal((6, 6))
    create_gram(path, 6)
    write_gram(path, 0, B[:4])
    write_gram(path, 4, B[4:])
    assert np.array_equal(GramRows(path)[3:4], B[3:4]) and np.array_equal(GramRows(path)[0:6], B)
    swap(path / "c" / "0", path / "c" / "2")
    for row in (0, 5):
        with pytest.raises(StoreError, match="not the file that was written here"):
            GramRows(path)[row : row + 1]
    assert np.array_equal(GramRows(path)[2:4], B[2:4])
    (path / seals.MANIFEST).unlink()
    with pytest.raises(StoreError, match="missing"):
        GramRows(path)[2:3]


@pytest.mark.parametrize("when", ["before it is sealed", "after"])
def test_swapped_kernel_columns(when, tmp_path, rng):
    path, C = tmp_path / "columns", rng.standard_normal((10, 4))
    create_columns(path, 10, 4, 4, "float64")
    known = {}
    for lo in (0, 4, 8):
        write_columns(path, lo, C[lo : lo + 4])
        known |= column_sums(path, [lo])
    if when == "after":
        seal_columns(path, known)
        assert np.array_equal(np.concatenate([rows for _, rows in stored_columns(path)]), C)
    swap(path / "c" / "0", path / "c" / "1")
    seal_columns(path, known)
    with pytest.raises(StoreError, match="not the file that was written here"):
        list(stored_columns(path))


def test_swapped_partial_sums(tmp_path, rng):
    arrays = Arrays(StoredArray("sums/state-*/node-*", ("row", "column"), ("float64",), "A sum."))
    states = CheckpointFolder(tmp_path / "sums", arrays)
    held = {f"node-{k}": rng.standard_normal((3, 3)) for k in range(3)}
    states.write(1, held, {"pass": 0})
    number, found, notes = states.read()
    assert number == 1 and all(np.array_equal(found[name], held[name]) for name in held) and notes["pass"] == 0
    folder = tmp_path / "sums" / "state-000001"
    swap(folder / "node-0", folder / "node-2")
    assert states.read() == (1, {}, {})
    swap(folder / "node-0", folder / "node-2")
    folder.rename(folder.with_name("state-000002"))
    assert states.read() == (2, {}, {})


def test_swapped_blocks_of_a_graph(tmp_path, rng):
    dense = rng.random((40, 40)) * (rng.random((40, 40)) < 0.3)
    write_csr_blocks(tmp_path / "g", csr_array(dense), 10)
    assert np.array_equal(read_csr(tmp_path / "g").toarray(), dense)
    swap(tmp_path / "g" / "block_00001", tmp_path / "g" / "block_00003")
    for read in (lambda: read_csr(tmp_path / "g"), lambda: read_csr_rows(tmp_path / "g", 10, 20)):
        with pytest.raises(StoreError, match="not the block that was written here"):
            read()
    assert np.array_equal(read_csr_rows(tmp_path / "g", 20, 30).toarray(), dense[20:30])


def test_stores_of_earlier_versions_have_no_seals(tmp_path, rng):
    dense = rng.random((20, 20))
    write_csr_blocks(tmp_path / "g", csr_array(dense), 10)
    root = tmp_path / "g" / "zarr.json"
    content = json.loads(root.read_text())
    del content["attributes"]["blocks"]
    root.write_text(json.dumps(content))
    assert np.array_equal(read_csr(tmp_path / "g").toarray(), dense)


def test_swapped_slabs_of_a_generation_are_not_exported(run, rng):
    generations = run.generations()
    folder = generations.begin(("U",), 3, 20, 4, "float64")
    slabs, array = rng.standard_normal((3, 20, 4)), SlabArray.open(folder / "U")
    written = [(str(array.chunk(k).relative_to(folder)), *array.write(k, slabs[k])) for k in range(3)]
    generation = generations.commit(folder, written, 3, 1, {})
    assert np.array_equal(np.concatenate(list(exported_columns(generation, "U", 12, 1.0)), axis=1), np.hstack(slabs))
    swap(generation.folder / "U" / "c.0.0.0", generation.folder / "U" / "c.2.0.0")
    with pytest.raises(StoreError, match="not the one that was committed"):
        list(exported_columns(generation, "U", 12, 1.0))

"""A state is there whole or not at all; one that is damaged counts as not there."""

import shutil
import tracemalloc

import google_crc32c
import numpy as np
import pytest
import zarr

from dkl.errors import DiskError, StoreError
from dkl.stores.checkpoints import CheckpointFolder
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.run import RunStore
from dkl.stores.seals import read_json, write_json

DECLARED = Arrays(
    StoredArray("alphas/alphas-*/one", ("row", "column"), ("float64",), "Values."),
    StoredArray("alphas/alphas-*/none", ("row",), ("float64",), "No values."),
    StoredArray("alphas/alphas-*/counts", ("row",), ("int64",), "Counts."),
)


@pytest.fixture
def states(tmp_path):
    return CheckpointFolder(tmp_path / "alphas", DECLARED, "alphas", "the coefficients")


def arrays(value):
    return {"one": np.full((2, 3), value), "none": np.empty(0), "counts": np.arange(4)}


def test_what_was_kept_comes_back(states):
    assert states.read() == (0, {}, {})
    states.write(1, arrays(1.0), {"step": 5})
    states.write(2, arrays(2.0), {"step": 6})
    number, found, notes = states.read()
    assert (number, notes["step"], list(found)) == (2, 6, ["one", "none", "counts"])
    assert (found["one"] == 2.0).all() and found["none"].shape == (0,) and found["counts"].dtype == np.arange(4).dtype
    assert [path.name for path in states.root.iterdir()] == ["alphas-000002"]


def test_what_is_read_is_held_as_file_and_array_alone(states, rng):
    """And not copied for its checksum as well: states may be as large as half of what a process may use."""
    kept = rng.standard_normal((1000, 1000))
    states.write(1, {"one": kept}, {})
    tracemalloc.start()
    try:
        found = states.read()[1]["one"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(found, kept) and peak < 2.2 * kept.nbytes


@pytest.mark.parametrize("turned", [np.asarray, np.transpose, np.asfortranarray, lambda values: values[::2, 1:]])
def test_the_checksum_is_of_shape_type_and_bytes_row_by_row(states, rng, turned):
    """As runs have it that were written before."""
    kept = turned(rng.standard_normal((5, 4)))
    states.write(1, {"one": kept}, {})
    told = zarr.open_array(states.root / "alphas-000001" / "one", mode="r").attrs["crc32c"]
    assert told == google_crc32c.value(f"{kept.shape} <f8 ".encode() + kept.tobytes())


def test_one_that_is_not_wanted_is_passed_over_but_counts(states):
    states.write(3, arrays(1.0), {"step": 5})
    assert states.read(lambda notes: notes["step"] == 6) == (3, {}, {})
    assert states.read(lambda notes: notes["no such note"]) == (3, {}, {})


def test_the_one_before_stands_in_for_a_damaged_one(states, tmp_path):
    states.write(1, arrays(1.0), {})
    shutil.copytree(states.root / "alphas-000001", tmp_path / "kept")
    states.write(2, arrays(2.0), {})
    shutil.move(tmp_path / "kept", states.root / "alphas-000001")
    assert (states.read()[1]["one"] == 2.0).all()
    chunk = next(path for path in (states.root / "alphas-000002" / "one" / "c").rglob("*") if path.is_file())
    content = chunk.read_bytes()
    chunk.write_bytes(bytes([content[0] ^ 4]) + content[1:])
    number, found, _ = states.read()
    assert number == 2 and (found["one"] == 1.0).all()


def test_the_state_of_another_run_counts_as_not_there(tmp_path):
    """Of the same shape, but of other settings; or one that does not say whose it is."""
    kept = {}
    for name, settings in (("one", {"C": 1.0}), ("other", {"C": 2.0}), ("again", {"C": 1.0})):
        RunStore.create(tmp_path / name, {"task": "svc", "settings": settings}).close()
        kept[name] = CheckpointFolder(tmp_path / name / "alphas", DECLARED, "alphas")
    kept["one"].write(1, arrays(1.0), {})
    for name in ("other", "again"):
        shutil.copytree(kept["one"].root, kept[name].root)
    assert kept["other"].read() == (1, {}, {})
    assert (kept["again"].read()[1]["one"] == 1.0).all()
    manifest = kept["other"].root / "alphas-000001" / "MANIFEST.json"
    write_json(manifest, {name: value for name, value in read_json(manifest).items() if name != "identity"})
    assert kept["other"].read() == (1, {}, {})


@pytest.mark.parametrize("call", ["folders.fsync_tree", "checkpoints.write_json", "checkpoints.write_array"])
def test_a_failure_leaves_the_state_before_and_no_rest(call, states, monkeypatch):
    states.write(1, arrays(1.0), {})

    def full(*_):
        raise DiskError("No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DiskError, match="No space left"):
        patch.setattr(f"dkl.stores.{call}", full)
        states.write(2, arrays(2.0), {})
    assert [path.name for path in states.root.iterdir()] == ["alphas-000001"]
    assert (states.read()[1]["one"] == 1.0).all()


def test_leftovers_and_foreign_folders(states):
    states.write(1, arrays(1.0), {})
    (states.root / "tmp-dead").mkdir()
    (states.root / "alphas-old").mkdir()
    states.remove_leftovers()
    assert sorted(path.name for path in states.root.iterdir()) == ["alphas-000001", "alphas-old"]
    assert states.read()[0] == 1
    states.drop()
    assert not states.root.exists()


def test_what_is_not_declared_is_not_kept(states):
    states.write(1, arrays(1.0), {})
    with pytest.raises(StoreError, match="alphas/alphas-000002/two: an array that is not declared"):
        states.write(2, arrays(2.0) | {"two": np.ones(2)}, {})
    with pytest.raises(StoreError, match="another type"):
        states.write(2, arrays(2.0) | {"counts": np.ones(2)}, {})
    assert [path.name for path in states.root.iterdir()] == ["alphas-000001"]

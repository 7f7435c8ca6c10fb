"""Partial sums are there whole or not at all, newest first, also across passes."""

import numpy as np
import pytest

from dkl.errors import DiskError
from dkl.stores import folders
from dkl.stores.checkpoints import PartialSums
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.seals import read_json, write_json

DECLARED = Arrays(
    StoredArray("sums/sums-*/nodes.*.parts.0", ("fold", "row", "column"), ("float64",), "Sums."),
    StoredArray("sums/sums-*/nodes.*.parts.1", ("fold", "row"), ("float64",), "Sums."),
)


def partials(value):
    return {(1, 0): (np.full((1, 3, 3), value), np.full((1, 2), value))}


def test_what_was_saved_comes_back(tmp_path):
    sums = PartialSums(tmp_path / "sums", DECLARED)
    assert sums.load_pass(0) == (0, {})
    sums.save_pass(1, 0, partials(1.0))
    sums.save_pass(2, 0, partials(2.0))
    number, found = sums.load_pass(0)
    assert number == 2 and (found[1, 0][0] == 2.0).all() and found[1, 0][1].shape == (1, 2)
    assert [path.name for path in (tmp_path / "sums").iterdir()] == ["sums-000002"]


def test_a_later_pass_counts_on(tmp_path):
    """Else its first states would count as older than the last of the pass before."""
    sums = PartialSums(tmp_path / "sums", DECLARED)
    sums.save_pass(7, 0, partials(1.0))
    number, found = sums.load_pass(1)
    assert (number, found) == (7, {})
    sums.save_pass(number + 1, 1, partials(5.0))
    assert (sums.load_pass(1)[1][1, 0][0] == 5.0).all()


def test_passes_that_ended(tmp_path):
    sums = PartialSums(tmp_path / "sums", DECLARED)
    assert sums.done() == []
    sums.mark_done(1)
    sums.mark_done(0)
    assert sums.done() == [0, 1]
    (tmp_path / "sums" / "done.json").write_text('{"passes": [0, 1, 2]}')  # its checksum is gone
    assert sums.done() == []


def test_a_failed_save_leaves_the_state_before(tmp_path, monkeypatch):
    sums = PartialSums(tmp_path / "sums", DECLARED)
    sums.save_pass(1, 0, partials(1.0))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DiskError, match="No space left"):
        patch.setattr(folders, "fsync_tree", full)
        sums.save_pass(2, 0, partials(2.0))
    assert [path.name for path in (tmp_path / "sums").iterdir()] == ["sums-000001"]
    assert (sums.load_pass(0)[1][1, 0][0] == 1.0).all()


def test_leftovers_are_swept(tmp_path):
    sums = PartialSums(tmp_path / "sums", DECLARED)
    sums.save_pass(1, 0, partials(1.0))
    (tmp_path / "sums" / "tmp-dead").mkdir()
    sums.remove_leftovers()
    assert [path.name for path in (tmp_path / "sums").iterdir()] == ["sums-000001"]


NODE = {"level": 1, "index": 0, "parts": [{"array": "nodes.0.parts.0"}, {"array": "nodes.0.parts.1"}]}


@pytest.mark.parametrize(
    "nodes",
    [
        None,
        "x",
        3,
        [3],
        *([NODE | change] for change in ({"level": "1"}, {"index": -1}, {"parts": "x"}, {"parts": [{}]})),
    ],
)
def test_nodes_that_nobody_wrote_are_no_sums(nodes, tmp_path):
    sums = PartialSums(tmp_path / "sums", DECLARED)
    sums.save_pass(3, 0, partials(1.0))
    manifest = tmp_path / "sums" / "sums-000003" / "MANIFEST.json"
    content = read_json(manifest)
    assert content["state"] == {"number": 0, "nodes": [NODE]}
    write_json(manifest, content | {"state": {"number": 0, "nodes": nodes}})
    assert sums.load_pass(0) == (3, {})


@pytest.mark.parametrize("passes", ["x", 3, [float("inf")], [None], {"a": 1}])
def test_passes_that_nobody_wrote_have_not_ended(passes, tmp_path):
    sums = PartialSums(tmp_path / "sums", DECLARED)
    sums.mark_done(0)
    write_json(tmp_path / "sums" / "done.json", {"passes": passes})
    assert sums.done() == []

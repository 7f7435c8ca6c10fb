"""Runs in an object store that are damaged, or made to lead elsewhere: told by their address, and nothing is written."""

import json

import pytest
from object_folders import ONE, fetched

from dkl.errors import StoreError
from dkl.stores.object_runs import ObjectRun


def spoil(root, name, change):
    path = root / name
    path.write(change(path.read()))


def listing(change):
    """Of a manifest, another list of files, sealed as if it had been written so; its commit tells its checksum."""

    def spoiled(root, run):
        content = run.last.files
        change(content)
        object.__setattr__(run.last, "number", 2)
        run.commits.create(run.last)

    return spoiled


DAMAGES = {
    "an object is gone": (
        lambda root, run: root.files.rm((root / f"files/00000001-{ONE}/large").key),
        "an object of this run is gone",
    ),
    "another content": (
        lambda root, run: spoil(root, f"files/00000001-{ONE}/a/c/0", lambda old: old[::-1]),
        "not the file that was committed",
    ),
    "an edited manifest": (
        lambda root, run: spoil(root, f"files/00000001-{ONE}.json", lambda old: old.replace(b"1000", b"1001")),
        "not the manifest that was committed",
    ),
    "a commit cut short": (
        lambda root, run: spoil(root, "commits/00000001.json", lambda old: old[:20]),
        "not readable as JSON",
    ),
    "a commit of another kind": (
        lambda root, run: spoil(root, "commits/00000001.json", lambda old: json.dumps({}).encode()),
        "its checksum does not match",
    ),
    "a file outside": (listing(lambda files: files.update({"../outside": files["large"]})), "files that no run has"),
    "an absolute one": (listing(lambda files: files.update({"/tmp/outside": files["large"]})), "files that no run has"),
    "an object outside": (
        listing(lambda files: files.update(large=files["large"]._replace(place="../../other"))),
        "files that no run has",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_told(damage, root, folder, tmp_path):
    run = ObjectRun(root)
    run.publish(folder, ONE)
    spoiled, told = DAMAGES[damage]
    spoiled(root, run)
    with pytest.raises(StoreError, match=told) as error:
        fetched(root, tmp_path / "inner" / "found" if (tmp_path / "inner").mkdir() else tmp_path / "inner" / "found")
    assert str(root) in str(error.value)
    assert not any((tmp_path / "inner").iterdir()) and not (tmp_path / "outside").exists()

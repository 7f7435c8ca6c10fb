"""A folder that is committed is there whole, in place of the one before; what fails leaves that one and nothing else."""

import errno
import os
import shutil

import pytest
import quick_disk

from dkl.errors import DiskError
from dkl.stores import folders


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """The disk is waited for here."""
    monkeypatch.setattr(os, "fsync", quick_disk.WAITS)


def fill(folder, text):
    (folder / "below").mkdir()
    (folder / "below" / "file").write_text(text)


def content(folder):
    return (folder / "below" / "file").read_text()


def commit(target, text):
    with folders.replaced_folder(target, "could not keep it") as folder:
        fill(folder, text)


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_takes_the_place_of_the_one_before(tmp_path):
    target = tmp_path / "model"
    for text in ("one", "two"):
        commit(target, text)
        assert content(target) == text and [path.name for path in tmp_path.iterdir()] == ["model"]
    assert target.stat().st_mode & 0o777 == 0o700


def test_files_then_folders_are_synced_before_the_rename_and_the_parent_after(tmp_path, monkeypatch):
    partial, trace = folders.begin_folder(tmp_path, "attempt"), []
    fill(partial, "one")
    rename, fsync = os.rename, folders.fsync
    monkeypatch.setattr(folders, "fsync", lambda path: (trace.append(path), fsync(path)))
    monkeypatch.setattr(os, "rename", lambda *paths: (trace.append(paths), rename(*paths)))
    folders.commit_folder(partial, tmp_path / "model")
    inner = partial / "below"
    assert trace == [inner / "file", inner, partial, (partial, tmp_path / "model"), tmp_path]


@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
def test_a_commit_that_fails_leaves_the_folder_before(call, tmp_path, monkeypatch):
    target = tmp_path / "model"
    commit(target, "one")
    with monkeypatch.context() as patch, pytest.raises(DiskError, match="could not keep it .No space left.*free space"):
        patch.setattr(os, call, full)
        commit(target, "two")
    assert content(target) == "one" and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_deleted_under_a_commit_is_no_full_disk(tmp_path):
    (tmp_path / "run").mkdir()
    with (
        pytest.raises(DiskError, match="No such file") as caught,
        folders.replaced_folder(tmp_path / "run" / "model", "could not keep it") as partial,
    ):
        fill(partial, "one")
        shutil.rmtree(tmp_path / "run")
    assert "deleted" in caught.value.remedy and "free space" not in str(caught.value)


def test_a_folder_that_was_set_aside_comes_back(tmp_path, monkeypatch):
    commit(tmp_path / "model", "one")
    rename = os.rename

    def refuse(source, target):
        return full() if source.name.startswith("tmp-") else rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(DiskError, match="No space left"):
        patch.setattr(os, "rename", refuse)
        commit(tmp_path / "model", "two")
    assert content(tmp_path / "model") == "one" and [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_error_of_the_writer_is_its_own(tmp_path):
    commit(tmp_path / "model", "one")
    with pytest.raises(ValueError, match="no"), folders.replaced_folder(tmp_path / "model", "could not") as folder:
        fill(folder, "two")
        raise ValueError("no")
    assert content(tmp_path / "model") == "one" and [path.name for path in tmp_path.iterdir()] == ["model"]


def make(root, *names):
    for name in names:
        (root / name).mkdir()


def names(root):
    return sorted(path.name for path in root.iterdir())


def test_folders_are_ordered_by_number(tmp_path):
    make(tmp_path, "gen-1000000", "gen-999999", "gen-000003", "gen-old", "gen-x-4", "general-5")
    found = folders.numbered_folders(tmp_path, "gen")
    assert [folders.number_of(folder) for folder in found] == [3, 999_999, 1_000_000]


def test_the_newest_are_kept_and_later_ones_go(tmp_path):
    make(tmp_path, *(f"gen-{number:06d}" for number in range(5)))
    folders.keep_newest(tmp_path, "gen", 3, 2)
    assert names(tmp_path) == ["gen-000002", "gen-000003"]


def test_failing_to_clear_up_is_no_failure(tmp_path, monkeypatch):
    make(tmp_path, *(f"gen-{number:06d}" for number in range(3)))
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        folders.keep_newest(tmp_path, "gen", 2, 1)
    assert len(names(tmp_path)) == 3
    folders.keep_newest(tmp_path, "gen", 2, 1)
    assert names(tmp_path) == ["gen-000002"]


def test_leftovers_go_but_for_those_of_the_attempt(tmp_path):
    make(tmp_path, "tmp-dead-1", "tmp-mine-2", "del-3", "model", "tmp")
    folders.remove_leftovers(tmp_path, but="mine")
    assert names(tmp_path) == ["model", "tmp", "tmp-mine-2"]
    folders.remove_leftovers(tmp_path)
    assert names(tmp_path) == ["model", "tmp"]

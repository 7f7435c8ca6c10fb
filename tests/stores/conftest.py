"""An address in fsspec's files in memory, and a folder to commit there."""

import uuid

import fsspec
import pytest
from object_folders import write

from dkl.io.paths import ObjectPath
from dkl.stores import object_runs


@pytest.fixture
def root():
    """An address where nothing is."""
    path = ObjectPath(f"memory://{uuid.uuid4().hex}/run.zarr")
    yield path
    files = fsspec.filesystem("memory")
    if files.exists(path.key):
        files.rm(path.key, recursive=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of a run: a file in it, one that is large, and what is no reader's business."""
    monkeypatch.setattr(object_runs, "SENT_TOGETHER", 1000)  # so that `large` goes by itself
    work = tmp_path / "work"
    for name, content in {"a/c/0": b"first", "config.json": b"{}", "large": bytes(1000)}.items():
        write(work, name, content)
    for name in ("LOCK", "tmp-1/a", "del-1/a", "scratch-1/V/c", "a/c/1.partial", "gen/tmp-1/a"):
        write(work, name, b"not a file of the run")
    return work

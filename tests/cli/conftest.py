"""A working folder with small inputs, and a finished run to spoil."""

import os
import shutil
from pathlib import Path

import pytest
from command_line import FIT, call, write_inputs


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with inputs and a run that has ended, for `work` to copy."""
    folder = tmp_path_factory.mktemp("finished")
    write_inputs(folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        answer = call(*FIT)
    finally:
        os.chdir(before)
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def work(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh current folder with the inputs alone."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("X.npz", "pairs.csv"):
        shutil.copy(finished / name, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def run(work: Path, finished: Path) -> Path:
    """The same with run.zarr, which has ended. Its config still names the data of the folder it was made in."""
    return Path(shutil.copytree(finished / "run.zarr", work / "run.zarr"))

"""Local paths as they are given: the home folder where no shell has expanded it."""

import numpy as np
import pytest

import dkl
from dkl.cli.main import dkl as command
from dkl.datasets import read_array
from dkl.errors import InputError
from dkl.io.paths import as_path, as_source


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with X.npy, in a process that works elsewhere."""
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    np.savez(folder / "X.npz", X=np.random.default_rng(0).normal(size=(12, 2)), y=np.arange(12) % 2)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.chdir(elsewhere)
    return folder


def test_a_tilde_is_the_home_folder(home):
    assert as_path("~/run.zarr") == as_source("~/run.zarr") == home / "run.zarr"
    assert as_path("~") == home
    assert read_array("~/X.npz").shape == (12, 2)
    with pytest.raises(InputError, match=f"{home}/run.zarr: no such run"):
        dkl.open_run("~/run.zarr")


def test_a_name_that_only_looks_like_a_home_folder_is_itself(home):
    np.save(home.parent / "elsewhere" / "~X.npy", np.eye(3))  # of no user
    assert read_array("~X.npy").shape == (3, 3)
    assert str(as_path("./~/X.npy")) == "~/X.npy"
    assert str(as_path("a/~")) == "a/~"


def test_commands_take_a_tilde_that_follows_an_equals_sign(home):
    from click.testing import CliRunner

    settings = ["--memory-limit=2GB", "--holdout=0"]
    result = CliRunner().invoke(command, ["plan", "svc", "--data=~/X.npz", "--out=~/run.zarr", *settings])
    assert result.exit_code == 0, result.output
    assert not (home.parent / "elsewhere" / "~").exists()

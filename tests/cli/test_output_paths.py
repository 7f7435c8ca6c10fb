"""Where results may be written: refused before any work, and never where the file would damage a run or a store."""

from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import FIT, call, tree, write_inputs

from dkl import dataset_sources
from dkl.errors import InputError
from dkl.estimators.kmeans import file as clusters_file
from dkl.runs.inputs.files import check_new
from dkl.stores.run import RunStore


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A folder with a run and a file of clusters."""
    folder = tmp_path_factory.mktemp("outputs")
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call(*FIT).code == 0
        assert call("cluster", "run.zarr", "--k", "4", "--out", "clusters.npz").code == 0
    return folder


def refuse_work(*_, **__):
    raise AssertionError("worked before the output was checked")


def test_a_data_set_is_not_read_for_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("taken.npz").write_bytes(b"")
    monkeypatch.setattr(dataset_sources, "description", refuse_work)
    for out, said in {
        "taken.npz": "taken.npz: exists already",
        "none/x.npz": "its folder does not exist",
        "x.txt": "--out: not a kind of file to write; got '.txt'; wanted .npz",
    }.items():
        answer = call("datasets", "digits", "--out", out)
        assert answer.code == 2 and said in answer.err, answer.err


def test_a_file_or_a_broken_link_on_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for name in ("file", "link"):
        with pytest.raises(
            InputError, match=f"{name}: a file or broken link, not a folder; wanted the folder of x.npz"
        ):
            check_new(tmp_path / name / "x.npz")


@pytest.mark.parametrize("out", ["run.zarr/x.npz", "run.zarr/factor/x.npz"])
def test_nothing_is_written_inside_a_run(out, fitted, monkeypatch):
    monkeypatch.chdir(fitted)
    before = tree(fitted)
    for words in (
        ("transform", "run.zarr", "--data", "X.npz", "--out", out),
        ("cluster", "run.zarr", "--k", "2", "--out", out),
        ("info", "run.zarr", "--picture", out.replace("npz", "png")),
        ("fit", "pairwise", "--data", "X.npz", "--pairs", "pairs.csv", "--out", out.replace("npz", "zarr")),
    ):
        answer = call(*words)
        assert answer.code == 2 and "inside a run or a zarr store, which another file damages" in answer.err, answer.err
    assert tree(fitted) == before


def test_nothing_is_written_inside_a_run_that_has_not_ended(tmp_path):
    for name in ("LOCK", "config.json"):
        assert check_new(tmp_path / "x.npy") == tmp_path / "x.npy"
        (tmp_path / name).write_text("")
    with pytest.raises(InputError, match="inside a run or a zarr store"):
        check_new(tmp_path / "x.npy")


def test_nothing_is_written_inside_a_zarr_array(tmp_path):
    zarr.create_array(tmp_path / "X.zarr", data=np.ones((4, 2)))
    with pytest.raises(InputError, match="inside a run or a zarr store"):
        check_new(tmp_path / "X.zarr" / "predicted.npy")


def test_an_output_is_refused_before_a_run_is_read(fitted, monkeypatch):
    monkeypatch.chdir(fitted)
    monkeypatch.setattr(RunStore, "check", refuse_work)
    monkeypatch.setattr(clusters_file, "read_clusters", refuse_work)
    for words in (
        ("transform", "run.zarr", "--data", "X.npz", "--out", "X.npz"),
        ("info", "run.zarr", "--picture", "X.npz"),
        ("info", "clusters.npz", "--picture", "X.npz"),
        ("cluster", "run.zarr", "--k", "2", "--out", "X.npz"),
    ):
        answer = call(*words)
        assert answer.code == 2 and "X.npz: exists already and is never overwritten" in answer.err, (words, answer.err)

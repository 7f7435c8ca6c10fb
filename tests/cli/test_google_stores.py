"""Runs in Google's storage, by the commands, against an emulator on 127.0.0.1: as in S3, which tests/cli/test_object_stores.py has."""

from pathlib import Path

import gcs_server
import pytest
import small_blocks
from command_line import call
from command_runs import bytes_of, refused
from run_cases import CASES

import dkl
from dkl.io.paths import ObjectPath
from dkl.stores.object_runs import ObjectRun

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")


@pytest.fixture
def google(monkeypatch, seed):
    """google(is_conditional): a new bucket of a new server, which this process can reach for this test."""
    import fsspec

    servers = []

    def begun(*, is_conditional=True):
        servers.append(gcs_server.gcs_server(is_conditional=is_conditional))
        for name, value in servers[-1].__enter__().items():
            monkeypatch.setenv(name, value)
        files = fsspec.filesystem("gs", use_listings_cache=False)
        files.mkdir(f"test-{seed:010d}")
        return f"gs://test-{seed:010d}"

    yield begun
    fsspec.get_filesystem_class("gs").clear_instance_cache()
    for server in servers:
        server.__exit__(None, None, None)


@pytest.mark.exhaustive
def test_a_run_in_google_s_storage_is_the_run_in_a_folder(google, tmp_path, monkeypatch):
    small_blocks.make_small(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    case, bucket = CASES["regression"], google()
    case.write(tmp_path)
    fit = ["fit", "regression", *case.files, *case.options, "--threads", "1", "--no-picture"]
    assert call(*fit, "--out", "run.zarr").code == 0
    answer = call(*fit, "--out", run := f"{bucket}/runs/one.zarr")
    assert answer.code == 0 and f"{run}: solved" in answer.out, answer.err
    opened = dkl.open_run(run)
    assert bytes_of(opened.path, *case.result) == bytes_of(Path("run.zarr"), *case.result)
    assert [call(verb, run).code for verb in ("info", "verify", "resume")] == [0, 0, 0]
    assert call("predict", run, "--data", "X.npz", "--out", "predicted.npy").code == 0
    assert call("predict", run, "--data", "X.npz", "--out", written := f"{bucket}/predicted.npy").code == 0
    assert ObjectPath(written).read() == Path("predicted.npy").read_bytes()
    refused(answer := call("predict", run, "--data", "X.npz", "--out", written), 2)
    assert f"{written}: exists already and is never overwritten" in answer.err
    refused(again := call(*fit, "--out", run), 2)
    assert f"{run}: exists already and is never overwritten" in again.err


def test_a_store_that_creates_an_object_twice_is_refused(google, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = CASES["regression"]
    case.write(tmp_path)
    bucket = google(is_conditional=False)
    refused(answer := call("fit", "regression", *case.files, *case.options, "--out", f"{bucket}/run"), 2)
    assert "its store cannot commit safely: it creates an object where there is one" in answer.err


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # of gcsfs's pieces
def test_a_large_file_goes_in_pieces(google, rng, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(content := rng.bytes(21_000_000))
    bucket = google()
    ObjectRun(ObjectPath(f"{bucket}/run")).publish(tmp_path / "work", "00000001")
    ObjectRun(ObjectPath(f"{bucket}/run")).fetch(tmp_path / "found")
    assert (tmp_path / "found" / "large").read_bytes() == content

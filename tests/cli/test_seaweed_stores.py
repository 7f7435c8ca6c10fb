"""Runs in SeaweedFS, a store of S3 that is not Amazon's and a real one: what tests/cli/test_object_stores.py has of it by default.

All of that file, and what else needs a bucket, passes on it too: `pytest -m exhaustive -k seaweedfs`.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import small_blocks
import without_store
import zarr
from command_line import call
from command_runs import bytes_of, refused
from dask_processes import wait_until
from patience import PATIENCE
from preloaded import Forked
from run_cases import CASES
from s3_server import new_bucket
from seaweed_server import seaweed

import dkl
from dkl.io.paths import ObjectPath
from dkl.stores import object_commits

CASE = CASES["regression"]


@pytest.mark.exhaustive
def test_every_verb_of_a_run_and_no_probe_is_left(seaweed_bucket, tmp_path, monkeypatch):
    """With the bytes of a run in a folder."""
    bucket = seaweed_bucket
    small_blocks.make_small(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    CASE.write(tmp_path)
    fit = ["regression", *CASE.files, *CASE.options, "--threads", "1"]
    assert call("fit", *fit, "--no-picture", "--out", "run.zarr").code == 0
    run = bucket / "runs/one.zarr"
    assert call("plan", *fit, "--out", run).code == 0 and bucket.names() == []
    answer = call("fit", *fit, "--no-picture", "--out", run)
    assert answer.code == 0 and f"{run}: solved" in answer.out, answer.err
    assert bytes_of(dkl.open_run(run).path, *CASE.result) == bytes_of(Path("run.zarr"), *CASE.result)
    told = [call(verb, run) for verb in ("info", "verify", "resume")]
    told.append(call("predict", run, "--data", "X.npz", "--out", "predicted.npy"))
    assert [one.code for one in told] == [0, 0, 0, 0], [one.err for one in told]
    refused(again := call("fit", *fit, "--out", run), 2)
    assert f"{run}: exists already and is never overwritten" in again.err
    assert {name.split("/")[0] for name in bucket.names("runs/one.zarr")} == {"commits", "files"}


def test_of_many_who_create_an_object_one_does(seaweed_bucket):
    path = ObjectPath(seaweed_bucket / "run/commits/00000001.json")
    with ThreadPoolExecutor(12) as pool:
        created = list(pool.map(lambda k: object_commits.create_object(path, b"%d" % k), range(12)))
    assert created.count(True) == 1 and path.read() == b"%d" % created.index(True)


@pytest.mark.exhaustive
def test_what_the_page_says_to_type(seaweed_bucket, tmp_path, monkeypatch):
    """The commands of cluster/README.md, in its order, of a bucket by another name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    for name, values in {"X": rng.standard_normal((60, 4)) + 3 * np.eye(4)[y], "y": y, "new": np.eye(4)}.items():
        np.save(f"{name}.npy", values)
    seaweed_bucket.upload(*(Path(f"{name}.npy").absolute() for name in ("X", "y", "new")))
    page = (Path(__file__).parents[2] / "cluster" / "README.md").read_text()
    commands = re.findall(r"^    dkl ((?:fit|resume|predict) .*s3://bucket.*)$", page, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["fit", "resume", "predict"]
    for command in commands:
        words = shlex.split(command.replace("s3://bucket", f"s3://{seaweed_bucket.name}"), comments=True)
        answer = call(*words)
        assert answer.code == 0, answer.err
    assert len(ObjectPath(seaweed_bucket / "labels.csv").read().split()) >= 4


@pytest.fixture
def lonely(tmp_path, monkeypatch):
    """(server, bucket): one that a test may kill. Runs are worked on in the folder `tmp`."""
    (tmp_path / "seaweed").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # of botocore by itself: s3fs tries again, too
    CASE.write(tmp_path)
    with seaweed(tmp_path / "seaweed") as server:
        yield server, new_bucket("lonely", server.environment, monkeypatch)


def begun(server, run, patience, monkeypatch):
    """`dkl fit`, whose store goes away as it ends."""
    with monkeypatch.context() as patch:
        patch.setenv("TMPDIR", str(Path("tmp").absolute()))
        fit = ["fit", "regression", *CASE.files, *CASE.options, "--threads", "1", "--no-picture", "--out", run]
        return Forked(without_store.main, str(patience), str(server.pid), *fit)


def short(err):
    """What a person reads: a line each, and none of the packages' own words."""
    assert "Traceback" not in err and "exception was never retrieved" not in err and len(err.splitlines()) < 20, err
    return err.splitlines()


@pytest.mark.exhaustive
def test_a_store_that_stays_away_at_the_end_has_the_folder_kept(lonely, monkeypatch):
    server, bucket = lonely
    run = bucket / "run"
    process = begun(server, run, 0, monkeypatch)
    _, err = process.communicate(PATIENCE)
    assert process.returncode == 5, err
    (kept,) = Path("tmp").absolute().glob("dkl-kept-*")
    last = short(err)[-1]
    assert last.startswith(f"dkl: {run}") and "its store cannot be reached" in last
    assert last.endswith(
        f"all is kept in {kept}: `dkl resume {kept}` commits it, and continues, once the store is back"
    )
    assert [call(verb, kept).code for verb in ("info", "verify")] == [0, 0]  # a run in a folder as any other
    refused(away := call("resume", kept), 5)
    assert "its store cannot be reached" in away.err
    server.kill()
    server.start()
    assert call("status", run).code == 0 and not dkl.open_run(run).is_complete
    answer = call("resume", kept)
    assert answer.code == 0 and f"{run}: complete" in answer.out, answer.err
    assert dkl.open_run(run).is_complete and call("verify", run).code == 0
    assert (
        call(
            "fit", "regression", *CASE.files, *CASE.options, "--threads", "1", "--no-picture", "--out", "run.zarr"
        ).code
        == 0
    )
    assert bytes_of(dkl.open_run(run).path, *CASE.result) == bytes_of(Path("run.zarr"), *CASE.result)


@pytest.mark.exhaustive
def test_a_fit_that_is_interrupted_while_its_store_is_away_has_the_folder_kept(lonely, monkeypatch):
    server, bucket = lonely
    run, pairs = bucket / "run", CASES["pairwise"]
    pairs.write(Path())
    fit = ["fit", "pairwise", *pairs.files, "--rank", "40", "--tol", "0", "--target-gap", "none", "--no-picture"]
    fit += ["--max-iter", "1000000", "--checkpoint-every", "20", "--threads", "1", "--out", run]
    with monkeypatch.context() as patch:
        patch.setenv("TMPDIR", str(Path("tmp").absolute()))
        process = Forked(small_blocks.main, "0", *fit)
    wait_until(lambda: any("generations" in name for name in bucket.names()) or process.poll() is not None)
    server.kill()
    wait_until(lambda: "note: not committed yet, the fit continues" in process.errors() or process.poll() is not None)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(PATIENCE)
    assert process.returncode == 4, err
    (kept,) = Path("tmp").absolute().glob("dkl-kept-*")
    assert any(str(kept) in line for line in short(err)[-2:]), err
    server.start()
    answer = call("resume", kept, "--max-iter", "1000")
    assert answer.code == 3 and f"{run}: iteration_limit" in answer.out, answer.err
    assert call("verify", run).code == 0


@pytest.mark.exhaustive
def test_a_store_that_comes_back_is_waited_for(lonely, monkeypatch):
    server, bucket = lonely
    process = begun(server, bucket / "run", PATIENCE, monkeypatch)
    wait_until(lambda: "note: waiting for up to" in process.errors() or process.poll() is not None)
    server.kill()
    server.start()
    out, err = process.communicate(PATIENCE)
    assert process.returncode == 0 and f"{bucket / 'run'}: solved" in out, err
    assert any(line.startswith("note: waiting for up to 240 s: ") for line in short(err)), err
    assert call("verify", bucket / "run").code == 0 and not list(Path("tmp").glob("dkl-kept-*"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", ["X.npz", "X.zarr"])
def test_commands_end_without_a_word_of_their_connections(data, seaweed_bucket, tmp_path):
    """Sessions of aiohttp that are open when a process ends are the system's to close: nobody is told of them."""
    CASE.write(tmp_path)
    with np.load(tmp_path / "X.npz") as held:
        zarr.save_array(tmp_path / "X.zarr", held["X"])
        np.save(tmp_path / "y.npy", held["y"])
    seaweed_bucket.upload(*(tmp_path / name for name in ("X.npz", "X.zarr", "y.npy")))
    run, rows, folder = seaweed_bucket / "run", seaweed_bucket / data, {"cwd": tmp_path, "timeout": PATIENCE}
    fit = ["fit", "regression", *CASE.options, "--threads", "1", "--data", rows, "--targets", seaweed_bucket / "y.npy"]
    predict = ["predict", run, "--data", rows, "--out", "predicted.npy"]
    for words in ([*fit, "--no-picture", "--out", run], ["info", run], predict, ["verify", run]):
        command = [sys.executable, "-m", "dkl.cli.main", *words]
        done = subprocess.run(command, capture_output=True, text=True, **folder)
        assert done.returncode == 0, done.stderr
        assert not re.search("aiohttp|Unclosed|client_session|connector|Traceback", done.stderr), done.stderr

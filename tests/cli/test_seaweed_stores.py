"""Runs in SeaweedFS, a store of S3 that is not Amazon's and a real one: what tests/cli/test_object_stores.py has of it by default.

All of that file, and what else needs a bucket, passes on it too: `pytest -m exhaustive -k seaweedfs`.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import small_blocks
from command_line import call
from command_runs import bytes_of, refused
from run_cases import CASES

import dkl
from dkl._object_paths import ObjectPath
from dkl.stores import object_commits

CASE = CASES["regression"]


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
        created = list(pool.map(lambda k: object_commits._create(path, b"%d" % k), range(12)))
    assert created.count(True) == 1 and path.read() == b"%d" % created.index(True)

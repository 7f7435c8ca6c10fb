"""Data and runs in an object store, by the commands, against a server of S3 on 127.0.0.1: the bytes of a run in a folder,
whatever interrupts it, and one line where it cannot be."""

import json
import pickle
import tempfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import small_blocks
import zarr
from command_line import call, write_inputs
from command_runs import bytes_of, refused
from run_cases import CASES
from scipy.sparse import csr_array
from sklearn.datasets import dump_svmlight_file

import dkl
from dkl.datasets import read_array, read_labels
from dkl.io.paths import ObjectPath, as_source
from dkl.runs.inputs.files import fingerprint
from dkl.runs.inputs.readers import load_rows
from dkl.side_information.loading import load_pairs, load_triplets
from dkl.stores.object_commits import RunCommits, create_object
from dkl.stores.object_runs import ObjectRun

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")


def options(task, files):
    case = CASES[task]
    named = [word if word.startswith("--") else files(word) for word in case.files]
    return ["fit", task, *named, *case.options, "--threads", "1", "--no-picture"]


@pytest.mark.exhaustive
def test_every_kind_of_input_is_read(bucket, rng, tmp_path):
    X, y = rng.standard_normal((50, 3)), np.arange(50) % 3
    zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(7, 3), dtype="f8")[...] = X
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "columns.npy", np.asfortranarray(X))
    np.savez(tmp_path / "X.npz", X=X, y=y)
    np.savetxt(tmp_path / "X.csv", X, delimiter=",", fmt="%.17g", header="a,b,c", comments="")
    dump_svmlight_file(csr_array(X), y, str(tmp_path / "X.svm"))
    np.savez(tmp_path / "triplets.npz", triplets=[[0, 3, 1]])
    (tmp_path / "pairs.csv").write_text("i,j,label\n0,3,must\n0,1,cannot\n")
    bucket.upload(*tmp_path.iterdir())
    for name, is_streamed in {
        "X.zarr": True,
        "X.npy": True,
        "columns.npy": True,
        "X.npz": False,
        "X.csv": False,
    }.items():
        rows = load_rows(as_source(bucket / name))
        assert rows.is_stored == is_streamed, name
        sent = pickle.dumps(rows)
        assert bucket.environment["AWS_SECRET_ACCESS_KEY"].encode() not in sent
        np.testing.assert_array_equal(pickle.loads(sent).read(5, 20), X[5:20], err_msg=name)
    here = read_array(tmp_path / "X.svm")
    np.testing.assert_array_equal(load_rows(as_source(bucket / "X.svm")).read(0, 50).toarray(), here.toarray())
    for found in (
        read_labels(bucket / "X.npz", 50),
        read_array(bucket / "X.svm", "y"),
        read_array(bucket / "X.npz", "y"),
    ):
        np.testing.assert_array_equal(found, y)
    assert load_pairs(bucket / "pairs.csv") == load_pairs(tmp_path / "pairs.csv")
    assert load_triplets(bucket / "triplets.npz") == load_triplets(tmp_path / "triplets.npz")
    for name in ("X.npy", "X.zarr"):
        known = fingerprint(as_source(bucket / name))
        assert known == fingerprint(as_source(bucket / name))
        assert known["size"] == fingerprint(tmp_path / name)["size"]
        changed = f"{bucket.name}/{name}" + ("/c/3/0" if name == "X.zarr" else "")
        content = bucket.files.cat_file(changed)
        bucket.files.pipe_file(changed, content[:-1] + bytes([content[-1] ^ 1]))
        now = fingerprint(as_source(bucket / name))
        assert now["size"] == known["size"] and now["crc32c"] != known["crc32c"]


def test_a_run_in_a_store_is_the_run_in_a_folder(bucket, tmp_path, monkeypatch):
    """Of a fit, and of what is asked of it afterwards; nothing tells of the folder that it is worked on in."""
    small_blocks.make_small(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    CASES["regression"].write(tmp_path)
    assert call(*options("regression", str), "--out", "run.zarr").code == 0
    bucket.upload(Path("X.npz").absolute())
    run, predicted = bucket / "runs/one.zarr", tmp_path / "predicted.npy"
    planned = call("plan", *options("regression", lambda name: bucket / name)[1:-1], "--out", run)
    assert planned.code == 0 and bucket.names("runs") == [], planned.err
    answer = call(*options("regression", lambda name: bucket / name), "--out", run)
    assert answer.code == 0 and f"{run}: solved" in answer.out, answer.err
    opened, parts = dkl.open_run(run), CASES["regression"].result
    assert bytes_of(opened.path, *parts) == bytes_of(Path("run.zarr"), *parts)
    assert opened.state == "complete, solved" and str(run) in repr(opened) and opened.path.stat().st_mode & 0o77 == 0
    assert call("predict", run, "--data", bucket / "X.npz", "--out", predicted).code == 0
    model = dkl.load("run.zarr")
    np.testing.assert_array_equal(np.load(predicted), model.predict(load_rows(Path("X.npz")).array))
    check_predictions(bucket, ("predict", run, "--data", bucket / "X.npz", "--threads", "1", "--out"), monkeypatch)
    assert dkl.resume(run).run_path_ == run
    told = [call("verify", run), call("resume", run), call("info", run, "--json")]
    assert [one.code for one in told] == [0, 0, 0]
    shown = json.loads(told[-1].out)
    assert shown["path"] == run and shown["config"]["inputs"]["data"]["path"] == bucket / "X.npz"
    everything = "".join(one.out + one.err for one in (answer, *told))
    for key in bucket.names("runs"):
        everything += bucket.files.cat_file(f"{bucket.name}/runs/{key}").decode("latin-1")
    for hidden in (tempfile.gettempdir() + "/dkl-", bucket.environment["AWS_SECRET_ACCESS_KEY"]):
        assert hidden not in everything
    # A changed number is seen, and told by the name that the user has.
    (chunk,) = (key for key in bucket.names("runs") if key.endswith("model/weights/c/0/0"))
    bucket.files.pipe_file(f"{bucket.name}/runs/{chunk}", bytes(100))
    monkeypatch.setattr("dkl.runs.stored._copies", {})
    refused(damaged := call("info", run), 6)
    assert f"{run}/files/" in damaged.err and "not the file that was committed" in damaged.err


def check_predictions(bucket, predict, monkeypatch):
    """Predict into the store: a file of each kind, whole or not at all; what is there stays, whether it came before or meanwhile."""
    for name in ("y.npy", "y.npz", "y.csv"):
        answers = call(*predict, name), call(*predict, bucket / f"out/{name}")
        assert [one.code for one in answers] == [0, 0] and f"{bucket / 'out'}/{name}: " in answers[1].out, answers
        there = bucket.files.cat_file(f"{bucket.name}/out/{name}")
        if name.endswith(".npz"):  # zipfile writes the time
            np.testing.assert_array_equal(np.load(BytesIO(there))["y"], np.load(name)["y"])
        else:
            assert there == Path(name).read_bytes()

    def overtaken(*given):
        bucket.files.pipe_file(f"{bucket.name}/out/z.npy", b"another's")
        return create_object(*given)

    monkeypatch.setattr("dkl.runs.output_files.create_object", overtaken)
    for out, said in {
        bucket / "out/y.npy": f"{bucket / 'out/y.npy'}: exists already and is never overwritten",
        bucket / "out/z.npy": f"{bucket / 'out/z.npy'}: exists already and is never overwritten",
        bucket / "out/y.txt": "--out: not a kind of file to write; got '.txt'",
        "s3://none/y.npy": "no such bucket",
    }.items():
        refused(answer := call(*predict, out), 2)
        assert said in answer.err, answer.err
    assert bucket.files.cat_file(f"{bucket.name}/out/z.npy") == b"another's"
    assert sorted(bucket.names("out")) == ["y.csv", "y.npy", "y.npz", "z.npy"]  # and nothing to try the store


@pytest.mark.exhaustive
def test_a_large_file_that_is_created_goes_in_pieces_once(bucket, rng, tmp_path):
    file, there = tmp_path / "large", ObjectPath(bucket / "large.npy")
    file.write_bytes(content := rng.bytes(21_000_000))
    assert create_object(there, file) and there.read() == content
    file.write_bytes(b"another")
    assert not create_object(there, file) and there.read() == content


@pytest.mark.exhaustive
def test_a_large_file_goes_in_pieces(bucket, rng, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(content := rng.bytes(21_000_000))
    ObjectRun(ObjectPath(bucket / "run")).publish(tmp_path / "work", "00000001")
    ObjectRun(ObjectPath(bucket / "run")).fetch(tmp_path / "found")
    assert (tmp_path / "found" / "large").read_bytes() == content
    tag = bucket.files.info(f"{bucket.name}/run/files/00000001-00000001/large")["ETag"]
    assert tag.strip('"').endswith("-3"), "as many pieces"


@pytest.mark.exhaustive
def test_of_two_who_work_on_a_run_one_goes_on(bucket, tmp_path, monkeypatch):
    """The server decides; who resumes a run has it from then on, and the other ends with one line."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    run = bucket / "run.zarr"
    fit = [
        "fit",
        "pairwise",
        "--no-picture",
        "--data",
        "X.npz",
        "--pairs",
        "pairs.csv",
        "--max-iter",
        "20",
        "--tol",
        "0",
    ]
    fit += ["--target-gap", "none", "--checkpoint-every", "5", "--out", run]
    create, others = RunCommits.create, []

    def overtaken(self, commit):
        if commit.number == 4 and not others:
            others.append(None)
            others[0] = call("resume", run)
        create(self, commit)

    monkeypatch.setattr(RunCommits, "create", overtaken)
    first = call(*fit)
    assert first.code == 2
    assert f"dkl: {run}: another process works on this run; got commit 4 by pid" in first.err.splitlines()[-1]
    assert others[0].code == 3 and call("verify", run).code == 0, others[0].err
    refused(again := call(*fit), 2)
    assert f"{run}: exists already and is never overwritten" in again.err


WRONG = {
    "no such object": (["--data", "{bucket}/none.npy"], "{bucket}/none.npy: no such object"),
    "no such array": (["--data", "{bucket}/none.zarr"], "{bucket}/none.zarr: no such object"),
    "no such bucket": (["--data", "s3://none/X.npy"], "s3://none/X.npy: no such bucket; make it first"),
    "a bucket alone": (["--data", "{bucket}"], "--data: no object's address; got {bucket}; wanted s3://bucket/key"),
    "another kind": (["--data", "https://127.0.0.1/X.npy"], "--data: not a kind of store that is known; got https://"),
    "a password": (
        ["--data", "s3://me:secret@host/X.npy"],
        "--data: a name or password in an address; got s3://...; set AWS",
    ),
    "not an archive": (["--data", "{bucket}/text.npz"], "{bucket}/text.npz: "),
    "a run in no bucket": (["--out", "s3://none/run"], "s3://none/run/probe-"),
    "a run in a bucket's place": (["--out", "{bucket}"], "--out: no object's address"),
    "a run over something": (["--out", "{bucket}/taken"], "{bucket}/taken: exists already and is never overwritten"),
    "a run over an object": (
        ["--out", "{bucket}/text.npz"],
        "{bucket}/text.npz: exists already and is never overwritten",
    ),
    "a run of another kind": (["--out", "ftp://host/run"], "--out: not a kind of store that is known; got ftp://"),
}


def test_what_cannot_be_is_one_line(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    for name in ("text.npz", "taken/thesis.txt"):
        bucket.files.pipe_file(f"{bucket.name}/{name}", b"text")
    before = bucket.names()
    for case, (words, told) in WRONG.items():
        words = [word.replace("{bucket}", f"s3://{bucket.name}") for word in words]
        words += ["--data", "X.npz"] if words[0] == "--out" else ["--out", bucket / "run.zarr"]
        answer = call("fit", "pairwise", "--pairs", "pairs.csv", *words)
        assert answer.code == 2, (case, answer.err)
        refused(answer)
        assert told.replace("{bucket}", f"s3://{bucket.name}") in answer.err and "secret" not in answer.err, (
            case,
            answer.err,
        )
    refused(answer := call("transform", "run.zarr", "--data", "X.npz", "--out", bucket / "run.npz"))
    assert "no such run" in answer.err
    for words in (["info"], ["resume"], ["verify"]):
        refused(answer := call(*words, bucket / "none"))
        assert f"{bucket / 'none'}: no such run; wanted one made by `dkl fit`" in answer.err
    assert bucket.names() == before

"""What is wrong is told in one line with the right exit code, quickly, and nothing is written or changed."""

import json
import os
import re
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import distributed.config  # noqa: F401  # its defaults come first
import numpy as np
import pytest
import zarr
from command_line import FIT, Answer, N, call, tree

from dkl.errors import InputError
from dkl.runs.backends import Cluster
from dkl.stores.run import RunStore
from dkl.stores.seals import write_json

X = np.random.default_rng(1).standard_normal((N, 6))


def changed(at: tuple[int, int], value: float) -> np.ndarray:
    bad = X.copy()
    bad[at] = value
    return bad


def npz(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


def binary(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def pickled_npz(path: Path) -> None:
    np.savez(path, X=np.array([[{}, 1.0]] * N, dtype=object))


def pickled_npy(path: Path) -> None:
    np.save(path, np.array([[{}, 1.0]] * N, dtype=object))


def truncated(path: Path) -> None:
    np.savez(path, X=X)
    path.write_bytes(path.read_bytes()[:-200])


def zip_of_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", "no array")


def zarr_group(path: Path) -> None:
    zarr.create_group(str(path))


def zarr_line(path: Path) -> None:
    zarr.create_array(str(path), shape=(N,), dtype="f8")[...] = 1.0


DATA: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "missing": ("bad.npz", lambda path: None),
    "folder": ("bad", Path.mkdir),
    "folder named npz": ("bad.npz", Path.mkdir),
    "other suffix": ("bad.txt", text("1,2\n3,4\n")),
    "empty file": ("bad.npz", binary(b"")),
    "truncated": ("bad.npz", truncated),
    "no zip": ("bad.npz", binary(b"PK\x03\x04 and then something else")),
    "zip of text": ("bad.npz", zip_of_text),
    "no X": ("bad.npz", npz(A=X, B=X)),
    "no arrays": ("bad.npz", npz()),
    "1-d": ("bad.npz", npz(X=X[:, 0])),
    "1-d npy": ("bad.npy", lambda path: np.save(path, X[:, 0])),
    "3-d": ("bad.npz", npz(X=X.reshape(N, 2, 3))),
    "0-d": ("bad.npz", npz(X=np.float64(1))),
    "one row": ("bad.npz", npz(X=X[:1])),
    "no rows": ("bad.npz", npz(X=X[:0])),
    "no columns": ("bad.npz", npz(X=X[:, :0])),
    "complex": ("bad.npz", npz(X=X + 1j)),
    "strings": ("bad.npz", npz(X=X.astype(str))),
    "dates": ("bad.npz", npz(X=np.zeros((N, 2), "M8[s]"))),
    "structured": ("bad.npz", npz(X=np.zeros((N, 2), [("a", "f8")]))),
    "pickled npz": ("bad.npz", pickled_npz),
    "pickled npy": ("bad.npy", pickled_npy),
    "NaN in the first row": ("bad.npz", npz(X=changed((0, 0), np.nan))),
    "inf in the last row": ("bad.npz", npz(X=changed((N - 1, 5), np.inf))),
    "-inf in npy": ("bad.npy", lambda path: np.save(path, changed((7, 2), -np.inf))),
    "overflow": ("bad.npz", npz(X=changed((3, 3), 1e308))),
    "csv of words": ("bad.csv", text("1,2\n3,four\n")),
    "ragged csv": ("bad.csv", text("1,2\n3,4,5\n")),
    "csv not UTF-8": ("bad.csv", binary(b"\xff\xfe\x00\x01\n1,2\n")),
    "zarr group": ("bad.zarr", zarr_group),
    "1-d zarr": ("bad.zarr", zarr_line),
    "damaged CSR": ("bad.npz", npz(data=np.ones(3), indices=np.array([0, 99, 1]), indptr=[0, 3], shape=[1, 4])),
    "pipe": ("bad.npy", os.mkfifo),
    "broken link": ("bad.npy", lambda path: path.symlink_to("nowhere.npy")),
    "link loop": ("bad.npy", lambda path: path.symlink_to(path.name)),
}

PAIRS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "missing": ("bad.csv", lambda path: None),
    "folder": ("bad.csv", Path.mkdir),
    "other suffix": ("bad.txt", text("0,1,must\n")),
    "empty": ("bad.csv", text("")),
    "header alone": ("bad.csv", text("i,j,label\n")),
    "out of range": ("bad.csv", text(f"0,{N},must\n")),
    "far out of range": ("bad.csv", text("0,99999999999999999999,must\n")),
    "negative": ("bad.csv", text("0,-1,must\n")),
    "with itself": ("bad.csv", text("0,1,must\n3,3,cannot\n")),
    "in both sets": ("bad.csv", text("0,1,must\n1,0,cannot\n")),
    "both ways": ("bad.npz", npz(must_link=[[0, 1], [1, 2]], cannot_link=[[2, 1], [1, 0]])),
    "other label": ("bad.csv", text("0,1,perhaps\n")),
    "fraction": ("bad.csv", text("0.5,1,must\n")),
    "words": ("bad.csv", text("zero,one,must\n")),
    "two cells": ("bad.csv", text("0,1\n")),
    "not UTF-8": ("bad.csv", binary(b"\xff\xfe\x00,1,must\n")),
    "zero bytes": ("bad.csv", binary(b"\x00" * 50)),
    "npz of floats": ("bad.npz", npz(must_link=np.array([[0.5, 1.0]]))),
    "npz of shape (m, 3)": ("bad.npz", npz(must_link=np.zeros((4, 3), int))),
    "npz of other names": ("bad.npz", npz(pairs=np.zeros((4, 2), int))),
    "npz of nothing": ("bad.npz", npz(must_link=np.zeros((0, 2), int))),
}

OPTIONS: dict[str, tuple[list[str], int]] = {
    "unknown option": (["--gama", "1"], 2),
    "no value": (["--gamma"], 2),
    "rank 0": (["--rank", "0"], 2),
    "rank 1.5": (["--rank", "1.5"], 2),
    "rank beyond n": (["--rank", str(N + 1)], 2),
    "rank beyond 64 bits": (["--rank", "1" + "0" * 30], 2),
    "negative gamma": (["--gamma", "-1"], 2),
    "gamma 0": (["--gamma", "0"], 2),
    "gamma inf": (["--gamma", "inf"], 2),
    "gamma in words": (["--gamma", "much"], 2),
    "tol NaN": (["--tol", "nan"], 2),
    "negative tol": (["--tol", "-1e-3"], 2),
    "target gap 0": (["--target-gap", "0"], 2),
    "rho 0": (["--rho", "0"], 2),
    "sigma 0": (["--sigma", "0"], 2),
    "no iterations": (["--max-iter", "0"], 2),
    "no neighbors": (["--n-neighbors", "0"], 2),
    "n neighbors": (["--n-neighbors", str(N)], 2),
    "other solver": (["--solver", "magic"], 2),
    "other dtype": (["--dtype", "float16"], 2),
    "other laplacian": (["--laplacian", "signed"], 2),
    "negative seed": (["--seed", "-1"], 2),
    "checkpoint every 0": (["--checkpoint-every", "0"], 2),
    "no size": (["--memory-limit", "lots"], 2),
    "size 0": (["--memory-limit", "0"], 2),
    "too little memory": (["--memory-limit", "1MB"], 5),
    "too little memory a worker": (["--workers", "2", "--memory-limit", "300MB"], 5),
    "no workers": (["--workers", "0"], 2),
    "no threads": (["--threads", "0"], 2),
    "workers and scheduler": (["--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], 2),
    "threads and workers": (["--workers", "2", "--threads", "2"], 2),
    "address without scheme": (["--scheduler", "127.0.0.1:8786"], 2),
    "address without port": (["--scheduler", "tcp://127.0.0.1"], 2),
    "port beyond 65535": (["--scheduler", "tcp://127.0.0.1:99999"], 2),
    "address of another kind": (["--scheduler", "http://127.0.0.1:8786"], 2),
    "tcp to another machine": (["--scheduler", "tcp://10.1.2.3:8786"], 2),
    "tcp to another name": (["--scheduler", "tcp://cluster.example.org:8786"], 2),
    "tls without certificates": (["--scheduler", "tls://127.0.0.1:8786"], 2),
    "no scheduler file": (["--scheduler-file", "none.json"], 2),
    "scheduler file no JSON": (["--scheduler-file", "pairs.csv"], 2),
    "an argument too many": (["more"], 2),
}


def refused(answer: Answer, code: int) -> None:
    assert answer.code == code, answer.err or answer.out
    assert len(answer.err.splitlines()) == 1, answer.err
    assert "Traceback" not in answer.err


def fit(**given: str) -> list[str]:
    names = {"data": "X.npz", "pairs": "pairs.csv", "out": "run.zarr", **given}
    return ["pairwise", *(word for name, value in names.items() for word in (f"--{name}", value))]


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", DATA)
def test_patterns(case: str, command: str, work: Path) -> None:
    name, make = DATA[case]
    make(work / name)
    if command == "plan" and case in ("NaN in the first row", "inf in the last row", "-inf in npy", "overflow"):
        pytest.skip("a plan reads no values")
    if command == "plan" and case == "truncated":
        pytest.skip("a plan reads the header alone")
    before = tree(work)
    refused(call(command, *fit(data=name)), 2)
    assert tree(work) == before


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", PAIRS)
def test_pairs(case: str, command: str, work: Path) -> None:
    name, make = PAIRS[case]
    make(work / name)
    before = tree(work)
    refused(call(command, *fit(pairs=name)), 2)
    assert tree(work) == before


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", OPTIONS)
def test_options(case: str, command: str, work: Path) -> None:
    arguments, code = OPTIONS[case]
    before = tree(work)
    refused(call(command, *FIT[1:], *arguments), code)
    assert tree(work) == before


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"address": 5}', '{"address": "nonsense"}', '{"address": "tls://a:1"}']
)
def test_scheduler_file_with_something_else(content: str, work: Path) -> None:
    (work / "s.json").write_text(content)
    refused(call(*FIT, "--scheduler-file", "s.json"), 2)


def test_the_file_of_a_scheduler_that_is_being_started_is_waited_for(work: Path) -> None:
    """Where workers are waited for. It is there and empty for a moment; and what does not come is refused."""
    file = work / "s.json"
    with pytest.raises(InputError, match="no such file"):
        Cluster.of(scheduler_file="s.json")
    steps = [lambda: None, file.touch, lambda: None, lambda: file.write_text('{"address": "tcp://127.0.0.1:9"}')]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", lambda seconds: steps.pop(0)())
        assert Cluster.of(scheduler_file="s.json", wait_for=2).address == "tcp://127.0.0.1:9"
    assert not steps
    file.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dkl.runs.backends.CONNECT_SECONDS", 0.2)
        with pytest.raises(InputError, match="no such file"):
            Cluster.of(scheduler_file="s.json", wait_for=2)


@pytest.mark.parametrize("place", ["--scheduler", "--scheduler-file"])
def test_tls_needs_certificates(place: str, work: Path) -> None:
    """Missing, and named in Dask's configuration but not to be read."""
    (work / "s.json").write_text(json.dumps({"address": (address := "tls://127.0.0.1:9")}))
    arguments = [*FIT, place, address if place == "--scheduler" else "s.json"]
    answer = call(*arguments)
    refused(answer, 2)
    assert place in answer.err and address in answer.err and "client.cert" in answer.err
    names = {name: str(work / "none.pem") for name in ("ca-file", "client.cert", "client.key")}
    for bad in ("none.pem", "X.npz"):
        names["ca-file"] = str(work / bad)
        with dask.config.set({f"distributed.comm.tls.{name}": file for name, file in names.items()}):
            answer = call(*arguments)
        refused(answer, 2)
        assert "cannot be read" in answer.err and "distributed.comm.tls" in answer.err


def test_a_plan_that_does_not_fit_names_the_limit_that_was_given(work: Path) -> None:
    regression = ("plan", "regression", "--data", "X.npz", "--out", "run.zarr", "--memory-limit", "100MB")
    for command in (("plan", *FIT[1:], "--memory-limit", "100MB"), regression):
        answer = call(*command)
        assert "got memory_limit 100 MB;" in answer.err and "; raise memory_limit" in answer.err
    answer = call(*regression, "--workers", "2")
    assert "got 75 MB, 75% of a worker's 100 MB;" in answer.err
    assert "; give each worker more memory (a higher --memory-limit, or fewer --workers)" in answer.err


def test_resume_s_help_names_its_own_options_alone() -> None:
    text = call("resume", "--help").out
    has = {word for line in text.splitlines() for word in re.findall(r"^  (?:-h, )?(--[a-z-]+)", line)}
    assert len(has) > 5 and set(re.findall(r"--[a-z-]+", text)) <= has


OUT: dict[str, tuple[str, int]] = {
    "a file": ("file", 2),
    "a folder with something in it": ("folder", 2),
    "the data": ("X.npz", 2),
    "this folder": (".", 2),
    "the root": ("/", 2),
    "a broken link": ("link", 2),
    "in no folder": ("none/run.zarr", 2),
    "below a file": ("file/run.zarr", 2),
    "where nobody may write": ("/proc/run.zarr", 5),
    "the pairs": ("pairs.csv", 2),
    "another tool's store": ("other.zarr", 2),
    "a folder of hidden files": ("hidden", 2),
    "a link to a folder": ("to_folder", 2),
    "a link to the data": ("to_data", 2),
    "a pipe": ("pipe", 2),
    "a device": ("/dev/null", 2),
    "an empty file": ("empty", 2),
}


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", OUT)
def test_out(case: str, command: str, work: Path) -> None:
    (work / "file").write_text("mine")
    (work / "folder").mkdir()
    (work / "folder" / "thesis.txt").write_text("mine")
    (work / "link").symlink_to("nowhere")
    zarr.save_array(str(work / "other.zarr"), X)
    (work / "hidden").mkdir()
    (work / "hidden" / ".mine").write_text("mine")
    (work / "to_folder").symlink_to("folder")
    (work / "to_data").symlink_to("X.npz")
    (work / "empty").touch()
    os.mkfifo(work / "pipe")
    before = tree(work)
    out, code = OUT[case]
    refused(call(command, *fit(out=out)), code)
    assert tree(work) == before


@pytest.mark.parametrize("command", [[], ["fit"], ["plan"]])
def test_groups_alone_show_help(command: list[str]) -> None:
    answer = call(*command)
    assert "Usage" in answer.out + answer.err
    assert call(*command, "nonsense").code == 2
    assert len(call(*command, "nonsense").err.splitlines()) == 1


TRANSFORMS: dict[str, tuple[list[str], str]] = {
    "no data": (["--data", "none.npz", "--out", "new.npz"], "no such file"),
    "other features": (["--data", "narrow.npz", "--out", "new.npz"], "features"),
    "NaN": (["--data", "nan.npz", "--out", "new.npz"], "contains NaN"),
    "out exists": (["--data", "X.npz", "--out", "X.npz"], "never overwritten"),
    "out of another kind": (["--data", "X.npz", "--out", "new.txt"], "kind of file"),
    "out in no folder": (["--data", "X.npz", "--out", "none/new.npz"], "does not exist"),
}


@pytest.mark.parametrize("case", TRANSFORMS)
def test_transform(case: str, run: Path, work: Path) -> None:
    np.savez(work / "narrow.npz", X=X[:, :3])
    np.savez(work / "nan.npz", X=changed((1, 1), np.nan))
    before = tree(work)
    arguments, words = TRANSFORMS[case]
    answer = call("transform", "run.zarr", *arguments)
    refused(answer, 2)
    assert words in answer.err
    assert tree(work) == before


def test_training_data_that_changed(run: Path, work: Path) -> None:
    config = RunStore.open(run).config
    config["inputs"]["data"]["path"] = str(work / "X.npz")
    write_json(run / "config.json", config)
    np.savez(work / "X.npz", X=X)
    np.savez(work / "new.npz", X=X[:5])
    answer = call("transform", "run.zarr", "--data", "new.npz", "--out", "out.npz")
    refused(answer, 2)
    assert "X.npz" in answer.err and "changed" in answer.err

"""Each command does what its help says, with the exit codes it promises."""

import errno
import json
import os
import re
import stat
import subprocess
import sys
import zlib
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import FIT, LARGE, N, call, factor_bytes, refused_without, tree
from patience import PATIENCE
from repeats import crossed

from dkl import __version__
from dkl.errors import InputError, WorkersLostError
from dkl.runs import backends as place
from dkl.runs import driver, registry
from dkl.runs.inputs import files as inputs
from dkl.runs.pairwise import fit as pairwise_fit
from dkl.stores.run import RunStore


def test_version_and_help() -> None:
    assert call("--version").out.strip() == f"dkl {__version__}"
    for command in (
        ["--help"],
        ["fit", "pairwise", "-h"],
        ["plan", "pairwise", "-h"],
        ["resume", "-h"],
        ["demo", "-h"],
    ):
        answer = call(*command)
        assert (answer.code, answer.err) == (0, "")
        assert "Usage" in answer.out


def test_nothing_large_is_imported_for_a_wrong_option() -> None:
    refused_without(LARGE, "fit", "pairwise", "--gamma", "-1")


def test_fit_is_reported_and_private(work: Path) -> None:
    answer = call(*FIT, "--checkpoint-every", "10")
    assert answer.code == 0, answer.err
    assert "proven relative gap" in answer.out
    run = work / "run.zarr"
    report, config = RunStore.open(run).report(), RunStore.open(run).config
    assert report["outcome"] == "solved"
    assert config["inputs"]["data"]["path"] == str(work / "X.npz")
    assert config["inputs"]["data"]["size"] == (work / "X.npz").stat().st_size
    assert config["inputs"]["pairs"]["path"] == str(work / "pairs.csv")
    assert config["settings"]["checkpoint_every"] == 10
    assert report["graph"]["sigma"] > 0
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert RunStore.open(run).factor().shape == (N, report["rank"])


def test_fit_is_the_estimator(work: Path) -> None:
    from dkl.blocks.graph.neighbor_graph import build_graph
    from dkl.blocks.session import Session
    from dkl.estimators.pairwise.fit import fit_problem, make_problem
    from dkl.estimators.pairwise.settings import PairwiseSettings
    from dkl.side_information.loading import load_pairs

    settings = PairwiseSettings(gamma=10.0, rank=8, seed=3)
    assert call(*FIT, "--gamma", "10", "--rank", "8", "--seed", "3").code == 0
    graph = build_graph(np.load("X.npz")["X"], session=Session(threads=1))
    problem = make_problem(graph.laplacian, load_pairs("pairs.csv").check(N), 10.0)
    fitted = fit_problem(problem, settings, Session(threads=1))
    assert np.array_equal(np.asarray(RunStore.open("run.zarr").factor()[...]), fitted.factor)


@pytest.mark.parametrize("kind", ["npy", "zarr", "csv", "float32", "sparse"])
def test_fit_reads_what_it_says(kind: str, work: Path) -> None:
    import scipy.sparse
    import zarr

    X = np.load("X.npz")["X"]
    name = {"npy": "D.npy", "zarr": "D.zarr", "csv": "D.csv", "float32": "D.npz", "sparse": "D.npz"}[kind]
    if kind == "npy":
        np.save(name, X)
    elif kind == "zarr":
        zarr.create_array(name, shape=X.shape, chunks=(7, 6), dtype=X.dtype)[...] = X
    elif kind == "csv":
        np.savetxt(name, X, delimiter=",", fmt="%.18e")
    elif kind == "float32":
        np.savez(name, X.astype(np.float32))
    else:
        scipy.sparse.save_npz(name, scipy.sparse.csr_array(X))
    arguments = ["pairwise", "--data", name, "--pairs", "pairs.csv", "--out", "run.zarr"]
    assert call("plan", *arguments).code == 0
    assert call("fit", *arguments, "--no-picture").code == 0
    assert call("verify", "run.zarr").code == 0
    assert call("transform", "run.zarr", "--data", name, "--out", "f.npz").code == 0
    assert np.array_equal(np.load("f.npz")["factor"], RunStore.open("run.zarr").factor()[...])


@pytest.mark.exhaustive
def test_single_precision_verifies(work: Path) -> None:
    assert call(*FIT, "--dtype", "float32", "--tol", "1e-3").code == 0
    assert RunStore.open("run.zarr").factor().dtype == np.float32
    assert call("verify", "run.zarr").code == 0


def test_not_converged_writes_the_result_and_resume_goes_further(work: Path) -> None:
    answer = call(*FIT, "--max-iter", "1")
    assert answer.code == 3
    assert answer.err.splitlines()[-1].startswith("dkl: not converged: iteration_limit (relative gap ")
    assert call("verify", "run.zarr").code == 0
    made = RunStore.open("run.zarr").report()["n_iter"]
    again = call("resume", "run.zarr")
    assert again.code == 3 and again.out.splitlines()[0].endswith("complete, nothing to do")
    assert again.err.startswith("dkl: not converged: iteration_limit (relative gap ")
    assert call("resume", "run.zarr", "--max-iter", "500").code == 0
    further = factor_bytes(work / "run.zarr")
    assert RunStore.open("run.zarr").report()["outcome"] == "solved"
    assert (work / "run.zarr" / f"report-{made:06d}.json").is_file()
    assert call(*FIT[:-1], "whole.zarr").code == 0
    assert factor_bytes(work / "whole.zarr") == further


def test_the_default_goes_further_by_what_was_allowed(work: Path) -> None:
    """The factored solver makes more iterations of its own than `max_iter` says."""
    auto = (*FIT, "--solver", "auto", "--target-gap", "1e-6")
    assert call(*auto, "--max-iter", "1").code == 3
    first = RunStore.open("run.zarr").report()
    assert first["solver"] == "factored" and first["n_iter"] > 15
    answer = call("resume", "run.zarr", "--max-iter", "15")
    assert answer.code == 0 and "nothing to do" not in answer.out
    assert RunStore.open("run.zarr").report()["certificate"]["relative_gap"] <= 1e-6
    assert call("verify", "run.zarr").code == 0


def test_a_complete_run_is_left_alone(run: Path) -> None:
    before = tree(run)
    for arguments in ([], ["--max-iter", "1000"], ["--checkpoint-every", "3"]):
        answer = call("resume", "run.zarr", *arguments)
        assert (answer.code, answer.err) == (0, "")
        assert "complete, nothing to do" in answer.out
    assert tree(run) == before


def test_target_gap_is_proven(work: Path) -> None:
    pytest.importorskip("dkl.solvers.pairwise.low_rank")
    assert call(*FIT, "--target-gap", "1e-5").code == 0
    assert RunStore.open("run.zarr").report()["certificate"]["relative_gap"] <= 1e-5
    assert call("verify", "run.zarr").code == 0


def test_plan_says_and_writes_nothing(work: Path) -> None:
    before = tree(work)
    answer = call("plan", *FIT[1:])
    assert (answer.code, answer.err) == (0, "")
    for words in ("factors", "disk", "a process, at most", "s an iteration", "rank"):
        assert words in answer.out
    spread = call("plan", *FIT[1:], "--workers", "2", "--rank", "40", "--memory-limit", "1GB")
    assert re.search(r"tasks an iteration .* exchanged an iteration", spread.out), spread.out + spread.err
    assert tree(work) == before


def test_plan_reads_no_values(work: Path) -> None:
    np.savez("X.npz", X=np.full((N, 6), np.nan))
    assert call("plan", *FIT[1:]).code == 0


def test_info_of_every_state(run: Path) -> None:
    before = tree(run)
    complete = call("info", "run.zarr")
    assert complete.code == 0
    for words in ("complete, solved", "proven relative gap", "objective", "plan", "X.npz"):
        assert words in complete.out
    facts = json.loads(call("info", "run.zarr", "--json").out)
    assert facts["state"] == "complete, solved"
    assert len(facts["history"]) == facts["report"]["n_iter"]
    assert facts["config"]["settings"]["gamma"] == 100.0
    assert tree(run) == before
    (run / "report.json").unlink()
    committed = sum(
        row.get("stage", "admm") == "admm" for row in facts["history"]
    )  # of the finish there are no commits
    assert f"resumable at iteration {committed}" in call("info", "run.zarr").out


def test_transform_of_new_patterns(cluster: Any, work: Path) -> None:
    assert call(*FIT).code == 0
    X = np.load("X.npz")["X"]
    np.savez("new.npz", X=X[10:20] + 1e-3)
    np.savez("some.npz", X=X[10:20])
    for name, out in (("new.npz", "new_factor.npy"), ("some.npz", "some_factor.npz")):
        assert call("transform", "run.zarr", "--data", name, "--out", out).code == 0
    factor = np.asarray(RunStore.open("run.zarr").factor()[...])
    assert np.array_equal(
        np.load("some_factor.npz")["factor"], factor[10:20]
    )  # patterns that are known keep their rows
    near = np.load("new_factor.npy")
    there = ("--scheduler", cluster.scheduler_address)
    assert call("transform", "run.zarr", "--data", "new.npz", "--out", "there.npy", *there).code == 0
    assert np.array_equal(np.load("there.npy"), near)
    kernel = near @ factor.T
    alike = np.arange(10, 20)[:, None] % 4 == np.arange(N) % 4
    assert kernel[alike].mean() > 0.5 > 0.3 > kernel[~alike].mean()


def test_local_widths_are_kept_for_new_patterns(work: Path) -> None:
    assert call(*FIT, "--sigma", "local", "--max-iter", "30").code == 0
    assert "sigma local, median" in call("info", "run.zarr").out
    X, factor = np.load("X.npz")["X"], np.asarray(RunStore.open("run.zarr").factor()[...])
    new = X[10:20] + 0.1
    np.savez("new.npz", X=new)
    assert call("transform", "run.zarr", "--data", "new.npz", "--out", "new.npy").code == 0
    d = np.linalg.norm(new[:, None] - X, axis=2)
    near = np.argsort(d, axis=1)[:, :10]
    s = np.sort(np.linalg.norm(X[:, None] - X, axis=2), axis=1)[:, 10]
    d = np.take_along_axis(d, near, axis=1)
    weights = np.exp(-((d / np.maximum(d[:, -1:], s[near])) ** 2))
    wanted = np.einsum("ij,ijk->ik", weights, factor[near])
    np.testing.assert_allclose(np.load("new.npy"), wanted / np.linalg.norm(wanted, axis=1, keepdims=True), atol=1e-9)
    assert call("verify", "run.zarr").code == 0


def test_verify_of_a_run_without_result(work: Path) -> None:
    kind = registry.kind("pairwise")
    settings = kind.declaration.settings()
    files = inputs.Files.of(kind.declaration.files, {"data": "X.npz", "pairs": "pairs.csv"})
    read = kind.read(files, settings, values=True)
    RunStore.create(work / "run.zarr", driver.config_of(kind, read, settings)).close()
    assert "not started" in call("info", "run.zarr").out
    assert call("verify", "run.zarr").code == 6
    assert call("resume", "run.zarr").code == 0
    assert call("verify", "run.zarr").code == 0


def test_a_refusal_by_the_graph_leaves_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dkl.runs.pairwise.kind.check_values", lambda rows: None)
    X = np.load("X.npz")["X"]
    X[5, 5] = np.nan
    np.savez("X.npz", X=X)
    before = tree(work)
    assert call(*FIT).code == 2
    assert tree(work) == before


@pytest.mark.parametrize(
    ("method", "number"),
    crossed(["write_report", "log", "create_factor", "write_pairs"], [errno.ENOSPC, errno.EDQUOT]),
)
def test_a_full_disk_is_a_lack_of_resources(
    method: str, number: int, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(number, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, method, full)
        answer = call(*FIT)
    assert answer.code == 5, answer.err
    assert "no room" in answer.err.splitlines()[-1]
    assert call("resume", "run.zarr").code == 0


@pytest.mark.parametrize("error", [MemoryError("no memory"), WorkersLostError("all gone")])
def test_other_lacks_of_resources(error: Exception, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(pairwise_fit, "fit_pairs", fail)
    assert call(*FIT).code == 5


def test_a_bug_leaves_its_traceback_in_a_file(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(pairwise_fit, "fit_pairs", fail)
    answer = call(*FIT)
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 1
    file = Path(answer.err.split()[-1])
    assert "ZeroDivisionError: ours" in file.read_text()
    file.unlink()


@pytest.mark.exhaustive
def test_the_result_is_the_same_on_a_cluster(work: Path, cluster: Any) -> None:
    assert call(*FIT).code == 0
    (work / "s.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    arguments = FIT[:-1]
    assert call(*arguments, "submitted.zarr", "--scheduler-file", "s.json").code == 0
    assert factor_bytes(work / "submitted.zarr") == factor_bytes(work / "run.zarr")
    plan = call("plan", *arguments[1:], "planned.zarr", "--scheduler", cluster.scheduler_address)
    assert plan.code == 0, plan.err


def test_workers_of_its_own_listen_on_loopback_alone(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    seen: list[str] = []
    prepare = pairwise_fit._prepared

    def look(*arguments: Any) -> Any:
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            seen.extend(at.laddr.ip for at in process.net_connections("inet") if at.status == psutil.CONN_LISTEN)
        return prepare(*arguments)

    monkeypatch.setattr(pairwise_fit, "_prepared", look)
    assert call(*FIT, "--workers", "2").code == 0
    assert seen and set(seen) == {"127.0.0.1"}
    assert RunStore.open("run.zarr").report()["worker_peak_bytes"] > 0


def test_a_scheduler_that_does_not_answer(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "CONNECT_SECONDS", 1)
    before = tree(work)
    answer = call(*FIT, "--scheduler", "tcp://127.0.0.1:9")
    assert answer.code == 5, answer.err
    assert "tcp://127.0.0.1:9" in answer.err
    assert len(answer.err.splitlines()) == 1
    assert tree(work) == before


@pytest.mark.exhaustive
def test_the_same_command_inside_dask() -> None:
    if "dkl" not in {entry.name for entry in entry_points(group="dask_cli")}:
        pytest.skip("dkl is not installed, so dask does not know it")
    for arguments, code in ((["--version"], 0), (["info", "none.zarr"], 2), (["info"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "dask", "dkl", *arguments], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, done.stderr
        assert len((done.stdout + done.stderr).splitlines()) == 1


@pytest.mark.exhaustive
def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dkl.cli import demo

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SETTINGS", replace(demo.SETTINGS, rank=16, tol=1e-3))
    answer = call("demo", "--out", "demo", "--workers", "1")
    assert answer.code == 0, answer.err
    for words in ("k-means", "spectral clustering", "learned kernel", "certificate", "seconds", "peak memory"):
        assert words in answer.out
    assert {"X.npz", "pairs.csv", "run.zarr"} <= {path.name for path in (tmp_path / "demo").iterdir()}
    if "none" not in answer.out.split("picture")[-1].split("\n")[0]:
        assert (tmp_path / "demo" / "report.png").read_bytes()[:4] == b"\x89PNG"
    before = tree(tmp_path)
    assert call("demo", "--out", "demo").code == 2
    assert tree(tmp_path) == before
    assert call("verify", "demo/run.zarr").code == 0


def test_demo_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dkl.cli.demo import _free_folder

    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        names.append(_free_folder().name)
        _free_folder().mkdir()
    assert names == ["dkl-demo", "dkl-demo-2", "dkl-demo-3"]


def test_fingerprint_sees_every_byte_of_a_file_of_any_size(tmp_path: Path) -> None:
    """Most of it takes no disk; of 260 MB a changed byte between two of 64 pieces went unseen."""
    file = tmp_path / "large"
    file.touch()
    os.truncate(file, 260_000_000)
    before = inputs.fingerprint(file)
    assert before["checksum_of"] == "whole"
    assert inputs.check_unchanged(before, "rows") == file
    for byte in (0, 3_000_001, 259_999_999):
        with open(file, "r+b") as content:
            content.seek(byte)
            content.write(b"x")
        after = inputs.fingerprint(file)
        assert after["size"] == before["size"] and after["crc32c"] != before["crc32c"]
        with pytest.raises(InputError, match="have changed"):
            inputs.check_unchanged(before, "rows")
        before = after


@pytest.mark.parametrize("size", [25_600, 80 << 20])
def test_fingerprints_of_earlier_runs_are_compared_as_they_were_made(size: int, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(bytes(range(256)) * 100)
    os.truncate(file, size)
    checksum, content = zlib.crc32(b"."), np.memmap(file, np.uint8, "r")
    starts = [0] if size < 1e6 else np.linspace(0, size - (1 << 20), 64).astype(int)
    for start in starts:
        checksum = zlib.crc32(content[start : start + (1 << 20)], checksum)
    kind = "whole" if size < 1e6 else "pieces of 1048576 bytes"
    known = {"path": str(file), "size": size, "crc32": checksum, "checksum_of": kind}
    assert inputs.check_unchanged(known, "rows") == file
    with open(file, "r+b") as changed:
        changed.write(b"x")
    with pytest.raises(InputError, match="have changed"):
        inputs.check_unchanged(known, "rows")

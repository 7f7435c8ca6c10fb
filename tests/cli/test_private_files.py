"""What a run and a command leave is for the owner alone, and no link in a run's folder is followed."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from command_line import call, tree, write_inputs
from command_runs import refused
from repeats import but_for

from dkl.datasets import read_labels
from dkl.errors import InputError
from dkl.estimators.base.work_folder import claimed_folder, locked_folder
from dkl.runs.output_files import write_rows

FITS = {
    "pairwise": [
        "fit",
        "pairwise",
        "--data",
        "X.npz",
        "--pairs",
        "pairs.csv",
        "--max-iter",
        "5",
        "--checkpoint-every",
        "2",
    ],
    "regression": ["fit", "regression", "--data", "X.npz", "--nu", "0.1", "--store-columns"],
    "svc": ["fit", "svc", "--data", "X.npz"],
    "logdet": ["fit", "logdet", "--data", "X.npz", "--n-in", "2", "--n-out", "2", "--n-neighbors", "5"],
    "metric": ["fit", "metric", "--data", "X.npz", "--n-in", "2", "--n-out", "2"],
    "mvu": ["fit", "mvu", "--data", "X.npz", "--n-basis", "4", "--n-neighbors", "30", "--checkpoint-every", "1"],
}
USES = {
    "pairwise": ("transform", "new.npz"),
    "regression": ("predict", "new.csv"),
    "svc": ("predict", "new.npy"),
    "logdet": ("transform", "new.npz"),
    "metric": ("transform", "new.npz"),
    "mvu": ("transform", "new.npz"),
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return tmp_path


def modes(*paths: Path) -> dict[str, str]:
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    return {str(file): oct(stat.S_IMODE(file.stat().st_mode)) for file in files}


@pytest.mark.parametrize("task", but_for([task for task in FITS if task != "pairwise"], FITS))
def test_files_are_for_the_owner_alone(task: str, work: Path) -> None:
    before = os.umask(0)
    try:
        assert call(*FITS[task], "--out", "run.zarr", "--picture").code in (0, 3)
        verb, out = USES[task]
        assert call(verb, "run.zarr", "--data", "X.npz", "--out", out).code == 0
        if task == "pairwise":
            assert call("info", "run.zarr", "--picture", "drawn.png").code == 0
    finally:
        os.umask(before)
    found = modes(work / "run.zarr", work / out, *work.glob("drawn.png"))
    assert len(found) > 5 and set(found.values()) == {"0o600"}, found
    assert stat.S_IMODE((work / "run.zarr").stat().st_mode) == 0o700


def test_an_output_can_be_read_whatever_the_umask(work: Path) -> None:
    before = os.umask(0o777)
    try:
        write_rows(work / "new.npy", (2,), iter([np.arange(2)]), np.int64, "y")
    finally:
        os.umask(before)
    assert set(modes(work / "new.npy").values()) == {"0o600"}


LINKS = {
    "configuration": "config.json",
    "report": "report.json",
    "lock": "LOCK",
    "model": "model",
    "metadata": "zarr.json",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_inputs(folder)
    answer = call("fit", "svc", "--data", folder / "X.npz", "--no-picture", "--out", folder / "run.zarr")
    assert answer.code == 0, answer.err
    return folder / "run.zarr"


@pytest.mark.parametrize("verb", ["info", "verify", "resume"])
@pytest.mark.parametrize("case", LINKS)
def test_links_in_a_run_are_not_followed(case: str, verb: str, finished: Path, work: Path) -> None:
    part, elsewhere = finished / LINKS[case], work / "elsewhere"
    part.rename(elsewhere)
    part.symlink_to(elsewhere)
    try:
        before = tree(work)
        answer = call(verb, finished)
        refused(answer, 6)
        assert "a link in a run's folder" in answer.err
        assert tree(work) == before
    finally:
        part.unlink()
        elsewhere.rename(part)


def test_a_pipe_in_a_run_is_not_waited_for(finished: Path) -> None:
    pipe = finished / "model" / "pipe"
    os.mkfifo(pipe)
    try:
        answer = call("info", finished)
        refused(answer, 6)
        assert "a device or pipe in a run's folder" in answer.err
    finally:
        pipe.unlink()


LABELS = ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\tx", "-1", "+2.5", "red", 'say "a, b"', "'=quoted"]


def test_labels_that_look_like_formulas_read_back_unchanged(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(work / "new.csv", (len(LABELS),), iter([np.array(LABELS)]), "U20", "y")
    written = read_labels(work / "new.csv", len(LABELS))
    assert list(written[:4]) == LABELS[:4] and list(written[5:]) == LABELS[5:]
    assert "a spreadsheet takes 5 of these labels for formulas" in capsys.readouterr().err


def test_a_kernels_folder_is_one_fits_alone(work: Path) -> None:
    assert claimed_folder(work, "kernel") != claimed_folder(work, "kernel")
    with locked_folder(work, "dkl-kernels-1", "aaaa") as first:
        (first / "tiles").write_text("mine")
        with locked_folder(work, "dkl-kernels-1", "bbbb") as second:
            assert first != second and (first / "tiles").read_text() == "mine"
        assert not second.exists() and first.exists()
    assert not first.exists()


def test_what_a_dead_attempt_has_left_goes(work: Path) -> None:
    for name in ("dkl-kernels-1-dead", "dkl-kernels-1"):  # the second as an earlier version called it
        (work / name).mkdir()
        (work / name / "tiles").write_text("left")
    (work / "dkl-kernels-1-dead" / "LOCK").write_text("")
    (work / "dkl-kernels-2-other").mkdir()
    with locked_folder(work, "dkl-kernels-1", "cccc"):
        left = {path.name for path in work.glob("dkl-*")}
    assert left == {"dkl-kernels-1-cccc", "dkl-kernels-2-other"}


def test_a_work_folder_that_is_none_is_told() -> None:
    with pytest.raises(InputError, match="no such folder"):
        claimed_folder("none", "kernel")


CANARY = "canary-5f1b8e"


@pytest.mark.parametrize("task", but_for([task for task in FITS if task != "svc"], FITS))
def test_no_secret_of_the_environment_is_written(task: str, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS", "DKL_SOMETHING"):
        monkeypatch.setenv(name, CANARY)
    verb, out = USES[task]
    for command in (
        (*FITS[task], "--out", "run.zarr", "--picture"),
        (verb, "run.zarr", "--data", "X.npz", "--out", out),
        ("info", "run.zarr"),
        ("verify", "run.zarr"),
    ):
        answer = call(*command)
        assert answer.code in (0, 3) and CANARY not in answer.out + answer.err
    files = [file for file in work.rglob("*") if file.is_file()]
    assert len(files) > 10 and not [file for file in files if CANARY.encode() in file.read_bytes()]


@pytest.mark.parametrize("option", ["--data", "--out"])
def test_a_secret_in_an_address_is_not_told(option: str, work: Path) -> None:
    given = {"--data": "X.npz", "--out": "run.zarr"} | {option: f"s3://someone:{CANARY}@bucket/it"}
    before = tree(work)
    answer = call("fit", "svc", *(word for pair in given.items() for word in pair))
    refused(answer, 2)
    assert CANARY not in answer.out + answer.err and tree(work) == before


@pytest.mark.parametrize("verb", ["info", "verify", "resume"])
def test_a_folder_that_is_no_run_is_not_searched(verb: str, work: Path) -> None:
    folder = work / "other"
    folder.mkdir()
    (folder / "link").symlink_to("/nowhere")
    (folder / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    refused(answer := call(verb, folder), 6)
    assert "not a run of dkl" in answer.err
    (folder / "config.json").write_text("{}")
    refused(answer := call(verb, folder), 6)
    assert "a zarr store, but not a run of dkl" in answer.err

"""A run's folder that is renamed or deleted under a fit: exit 5, nothing at the old path, and the fit goes on where the folder is."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import small_blocks
from command_line import call
from command_runs import bytes_of
from patience import PATIENCE
from preloaded import Forked
from repeats import but_for, crossed
from run_cases import CASES

import dkl
from dkl.cli.main import main as dkl_command
from dkl.errors import DiskError
from dkl.stores.run import RunStore

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
MOMENTS = [0.1, 0.3, 0.5, 0.7, 0.9, 0.97]
"""Shares of the writes of a fit after which its folder goes."""


def rename(run: Path) -> None:
    if run.exists():
        run.rename(run.with_name("moved.zarr"))


def replace(run: Path) -> None:
    """Rename it, and put another run in its place."""
    rename(run)
    shutil.copytree(run.with_name("another.zarr"), run)


def delete(run: Path) -> None:
    """Delete it, also while workers write into it."""
    while run.exists():
        shutil.rmtree(run, ignore_errors=True)


WAYS = {"renamed": rename, "deleted": delete, "replaced": replace}


def options(task: str) -> list[str]:
    return [
        "fit",
        task,
        *CASES[task].files,
        *CASES[task].options,
        "--no-picture",
        "--threads",
        "1",
        "--out",
        "run.zarr",
    ]


@pytest.fixture(scope="module", params=but_for(["svc", "logdet", "metric", "mvu", "laplacian"], list(CASES)))
def finished(request, tmp_path_factory):
    """(task, folder with its inputs and a complete run, how many writes it took)."""
    folder = tmp_path_factory.mktemp(request.param)
    CASES[request.param].write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_blocks.make_small(patch.setattr)
        assert call(*options(request.param)).code in (0, 3)  # what is compiled once is written, too
        shutil.rmtree("run.zarr")
        writes = small_blocks.Writes(patch.setattr, lambda: None)
        assert call(*options(request.param)).code in (0, 3)
    return request.param, folder, writes.count


@pytest.fixture
def work(finished, tmp_path, monkeypatch):
    for file in finished[1].iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    RunStore.create(tmp_path / "another.zarr", {"task": "svc", "settings": {}}).close()
    small_blocks.make_small(monkeypatch.setattr)
    return tmp_path


def is_untouched(run: Path) -> bool:
    """Whether at the old path is nothing, or the run that was begun there, without a file more."""
    return not run.exists() or sorted(os.listdir(run)) == ["LOCK", "config.json", "zarr.json"]


@pytest.mark.parametrize(("way", "moment"), crossed(list(WAYS), MOMENTS))
def test_a_folder_that_goes_under_the_command(way, moment, finished, work, monkeypatch):
    task, folder, count = finished
    run, gone = work / "run.zarr", []

    def once():
        if not gone and (run / "config.json").exists():
            gone.append(WAYS[way](run))

    with monkeypatch.context() as patch:
        small_blocks.Writes(patch.setattr, once, max(1, int(moment * count)))
        answer = call(*options(task))
    assert answer.code == 5 and gone, answer.err
    told = answer.err.splitlines()[-1]
    assert "the run's folder was renamed or deleted while it was worked on" in told, told
    assert ("a deleted folder" if way == "deleted" else str(work / "moved.zarr")) in told
    assert is_untouched(run)
    if way != "deleted":
        resumed = call("resume", "moved.zarr", "--threads", "1")
        assert resumed.code in (0, 3), resumed.err
        parts = CASES[task].result
        assert bytes_of(work / "moved.zarr", *parts) == bytes_of(folder / "run.zarr", *parts)


@pytest.mark.parametrize("finished", ["pairwise"], indirect=True)
@pytest.mark.parametrize("way", but_for(["deleted"], ["renamed", "deleted"]))
def test_a_folder_that_goes_under_resume_in_python(way, finished, work):
    """Once it is under way, by a callback; the fit is resumed from where the folder is."""
    task, folder, _ = finished
    run, gone = work / "run.zarr", []
    shutil.copytree(folder / "run.zarr", run)
    (run / "report.json").unlink()
    shutil.rmtree(run / "generations", ignore_errors=True)
    shutil.rmtree(run / "factor")

    def once(row):
        if not gone:
            gone.append(WAYS[way](run))

    with pytest.raises(DiskError, match="renamed or deleted"):
        dkl.resume(run, n_jobs=1, callbacks=[once])
    assert gone and is_untouched(run)
    if way == "renamed":
        dkl.resume(work / "moved.zarr", n_jobs=1)
        assert bytes_of(work / "moved.zarr", *CASES[task].result) == bytes_of(folder / "run.zarr", *CASES[task].result)


@pytest.mark.parametrize("way", but_for(["deleted"], ["renamed", "deleted"]))
@pytest.mark.parametrize("learner", but_for(["regression"], ["pairs", "regression"]))
def test_a_folder_that_goes_under_an_estimator(way, learner, tmp_path, rng):
    X, y, gone = rng.standard_normal((80, 3)), np.arange(80) % 4, []

    def once(row):
        if not gone:
            (run,) = tmp_path.glob("*.zarr")
            gone.append((run, WAYS[way](run)))

    if learner == "pairs":
        model = dkl.PairwiseKernelLearner(rank=4, max_iter=20, n_jobs=1, work_dir=tmp_path, callbacks=[once])
    else:
        model = dkl.LowRankKernelRegressor(n_columns=10, n_jobs=1, work_dir=tmp_path, callbacks=[once])
    with pytest.raises(DiskError, match="renamed or deleted"):
        model.fit(X, y)
    assert gone and is_untouched(gone[0][0])


@pytest.mark.exhaustive
@pytest.mark.parametrize("finished", ["pairwise"], indirect=True)
@pytest.mark.parametrize("way", but_for(["deleted"], ["renamed", "deleted"]))
def test_a_folder_that_goes_under_workers(way, finished, work):
    run, log = work / "run.zarr", work / "run.zarr" / "events.jsonl"
    words = [word if word != "--threads" else "--workers" for word in options("pairwise")]
    words[words.index("--max-iter") + 1] = "4000"
    process = Forked(dkl_command, *words, "--checkpoint-every", "20")
    try:
        while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 30):
            os.sched_yield()
        WAYS[way](run)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 5, err
    assert "renamed or deleted while it was worked on" in err.splitlines()[-1]
    assert not run.exists()

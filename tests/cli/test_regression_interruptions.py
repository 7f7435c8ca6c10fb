"""Ctrl-C, SIGKILL, a full disk and damaged sums: a run goes on to the very bytes of one that nobody disturbed."""

import errno
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import small_blocks
from command_line import call
from command_runs import commits, start, told_of_commit
from patience import PATIENCE
from regression_files import FIT, model_bytes, write_inputs
from repeats import but_for, crossed

from dkl.stores.run import RunStore

LONG = (*FIT, "--n-columns", "80", "--checkpoint-every", "1", "--store-columns")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def wholes(folder):
    """{where the Gram matrix is: (options, model, number of writes)} of runs that have room and time."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_blocks.make_small(patch.setattr)
        options = {"folds": ("--cv", "3", "--n-nus", "20"), "memory": ("--nu", "1")}
        for place in ("folds", "memory", "disk"):
            if place == "disk":
                limit = RunStore.open("memory.zarr").report()["plan"]["process_bytes"] - 1
                options["disk"] = ("--nu", "1", "--memory-limit", str(limit))
            with pytest.MonkeyPatch.context() as counting:
                writes = small_blocks.Writes(counting.setattr, lambda: None)
                answer = call(*(f"{place}.zarr" if word == "run.zarr" else word for word in LONG), *options[place])
            assert answer.code == 0, answer.err
            found[place] = options[place], model_bytes(folder / f"{place}.zarr"), writes.count
    assert RunStore.open(folder / "memory.zarr").report()["plan"]["placement"] == "memory"
    assert RunStore.open(folder / "disk.zarr").report()["plan"]["placement"] == "disk"
    return found


@pytest.fixture
def work(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_blocks.make_small(monkeypatch.setattr)
    for name in ("X.npz", "new.npz"):
        shutil.copy(folder / name, tmp_path)
    return tmp_path


def waves(run="run.zarr"):
    return [event for event in RunStore.open(run).events() if event["event"] == "wave"]


def goes_on(wanted):
    for part in Path("run.zarr/columns"), Path("run.zarr/gram"):
        if part.is_dir():  # a kill while zarr writes a chunk leaves what it had
            (part / "0.5e9f.partial").write_bytes(b"torn")
    answer = call("resume", "run.zarr")
    assert answer.code == 0, answer.err
    assert model_bytes(Path("run.zarr")) == wanted
    assert not Path("run.zarr/sums").exists()
    assert not list(Path("run.zarr").glob("tmp-*")) and not list(Path("run.zarr").rglob("*.partial"))


def test_placements_agree(wholes):
    """The Gram matrix is summed in another order on disk, but candidates and columns are the same bytes."""
    assert {name for name in wholes["memory"][1] if wholes["memory"][1][name] != wholes["disk"][1][name]} <= {
        name for name in wholes["disk"][1] if name.startswith("model/")
    }


@pytest.mark.parametrize(("number", "place"), crossed([signal.SIGINT, signal.SIGTERM], ["folds", "disk"]))
def test_a_signal_commits_the_sums(number, place, work, wholes):
    options, wanted, _ = wholes[place]
    process = start(0, *LONG, *options, "--checkpoint-every", "1000")
    try:
        deadline = time.monotonic() + PATIENCE
        while not (work / "run.zarr" / "config.json").exists() or not waves():
            assert time.monotonic() < deadline and process.poll() is None, "it did not come to a wave"
            time.sleep(0.01)
        os.killpg(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 4, err
    assert f"dkl resume {work / 'run.zarr'}" in told_of_commit(err)
    done = commits()[-1]
    assert len(commits()) == 1 and done["done"] > 0
    assert f"resumable at {done['done']} of {done['of']}" in call("info", "run.zarr").out
    goes_on(wanted)
    assert not again(done)


def again(done):
    """Waves after a commit that are not beyond it."""
    later = [event for event in waves() if event["at"] > done["at"]]
    return [event for event in later if (event["panel"], event["done"]) <= (done["panel"], done["done"])]


@pytest.mark.parametrize("place", but_for(["folds"], ["folds", "disk"]))
def test_killed_at_any_write(place, work, wholes, seed):
    options, wanted, count = wholes[place]
    draw = random.Random(seed)
    for at in (draw.randint(1, count // 2), draw.randint(count // 2, int(0.9 * count))):
        process = start(at, *LONG, *options)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, err
        if Path("run.zarr/config.json").exists():
            goes_on(wanted)
        shutil.rmtree("run.zarr", ignore_errors=True)


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_full_disk(at, options, wanted):
    """No room from write `at` on. How many commits there were, or None where the run was not even begun."""
    with pytest.MonkeyPatch.context() as patch:
        small_blocks.Writes(patch.setattr, full, at)
        answer = call(*LONG, *options)
    assert answer.code == 5, (at, answer.err)
    told = answer.err.splitlines()[-1]
    assert "No space left on device" in told and "run.zarr" in told, (at, told)
    if not Path("run.zarr/config.json").exists():
        assert not Path("run.zarr").exists()
        return None
    assert "free space on that disk" in told, (at, told)
    count = len(commits())
    goes_on(wanted)
    shutil.rmtree("run.zarr")
    return count


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", ["folds", "disk"])
def test_a_disk_that_fills_up(place, work, wholes, seed):
    options, wanted, count = wholes[place]
    draw = random.Random(seed)
    places = [int((k + draw.random()) / 5 * 0.9 * count) + 1 for k in range(5)]  # the last writes vary
    assert len({check_full_disk(at, options, wanted) for at in places}) >= 3, "too few stages were met"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["folds", "memory", "disk"])
def test_a_disk_that_fills_up_at_every_write(place, work, wholes):
    options, wanted, count = wholes[place]
    for at in range(1, int(0.9 * count), 3):  # the last writes vary
        check_full_disk(at, options, wanted)


@pytest.fixture
def stopped(work, wholes):
    """run.zarr that a full disk ended in the second pass over the rows, and the model it should come to."""
    options, wanted, _ = wholes["disk"]
    with pytest.MonkeyPatch.context() as patch:
        real = RunStore.log

        def log(self, **event):
            if event["event"] == "wave" and event["panel"] == 1 and event["done"] >= 4:
                full()
            real(self, **event)

        patch.setattr(RunStore, "log", log)
        assert call(*LONG, *options).code == 5
    assert commits()[-1]["panel"] == 1 and 0 < commits()[-1]["done"] < 4
    return work / "run.zarr", wanted


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def chunk(run, pattern):
    return next(path for path in sorted(run.glob(pattern)) if path.is_file())


DAMAGED = {
    "nothing": lambda run: None,
    "a sum": lambda run: flipped(chunk(run, "sums/sums-*/nodes.*/c/**/*")),
    "a sum is gone": lambda run: chunk(run, "sums/sums-*/nodes.*/c/**/*").unlink(),
    "the manifest": lambda run: flipped(chunk(run, "sums/sums-*/MANIFEST.json")),
    "the passes that ended": lambda run: flipped(chunk(run, "sums/done.json")),
    "all sums": lambda run: shutil.rmtree(run / "sums"),
    "a foreign folder": lambda run: (run / "sums" / "sums-old").mkdir(),
}


@pytest.mark.parametrize("case", but_for(DAMAGED.keys() - {"a sum", "a foreign folder"}, DAMAGED))
def test_damaged_sums_are_computed_anew(case, stopped):
    run, wanted = stopped
    DAMAGED[case](run)
    done = commits()[-1]
    goes_on(wanted)
    assert bool(again(done)) == (case not in ("nothing", "a foreign folder"))


def test_damaged_candidates_and_gram_rows_are_told(stopped):
    run, _ = stopped
    for pattern in ("candidates/points/c/*/*", "gram/c/0/*"):
        path = chunk(run, pattern)
        content = path.read_bytes()
        flipped(path)
        answer = call("resume", "run.zarr")
        assert (answer.code, len(answer.err.splitlines()[-1:])) == (6, 1), (pattern, answer.err)
        path.write_bytes(content)


def test_kept_columns_that_were_lost_are_told(stopped):
    chunk(stopped[0], "columns/c/0/*").unlink()
    answer = call("resume", "run.zarr")
    assert answer.code == 6 and "kept columns" in answer.err.splitlines()[-1]

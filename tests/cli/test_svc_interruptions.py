"""Ctrl-C, SIGKILL, a full disk and damaged states: a run goes on from what was kept last, to the very bytes of a run that
nothing disturbed."""

import errno
import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import small_blocks
from command_line import call
from command_runs import bytes_of, commits, start, told_of_commit
from patience import PATIENCE
from repeats import but_for
from svc_files import FIT, rows_and_labels, write_inputs

from dkl.estimators.svm.checkpoint import MachineCheckpointer
from dkl.estimators.svm.fit import _MachineFit as MachineFit
from dkl.solvers.svm.working_set import _WorkingSetState
from dkl.stores.run import RunStore

EACH = ("--checkpoint-every", "1")
LONG = (*FIT, "--rho", "2", "--tol", "1e-8", *EACH)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(folder with inputs and whole.zarr, what it came to, number of writes) of a run that has room and time."""
    folder = tmp_path_factory.mktemp("whole")
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small_blocks.make_small(patch.setattr)
        for out in ("first.zarr", "whole.zarr"):  # the first compiles, and keeps what it has compiled
            with pytest.MonkeyPatch.context() as counting:
                writes = small_blocks.Writes(counting.setattr, lambda: None)
                answer = call(*(out if word == "run.zarr" else word for word in LONG))
            assert answer.code == 0, answer.err
        return folder, result_of("whole.zarr"), writes.count


@pytest.fixture
def work(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_blocks.make_small(monkeypatch.setattr)
    for name in ("X.npz", "new.npz"):
        shutil.copy(whole[0] / name, tmp_path)
    return tmp_path


def result_of(run):
    """All that a run came to: bytes of the model's and the history's arrays, and what the report says of them."""
    report = RunStore.open(run).report()
    return bytes_of(Path(run), "model", "history"), {name: report[name] for name in ("outcome", "n_iter", "outputs")}


def goes_on(whole, solved=0):
    """To the same bytes; machines that were solved are not solved again."""
    begun, real = set(), MachineFit._solve_one

    def solve(self, problem, exact, watch, machine):
        begun.add(machine.number)
        return real(self, problem, exact, watch, machine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MachineFit, "_solve_one", solve)
        answer = call("resume", "run.zarr")
    assert answer.code == 0, answer.err
    assert len(begun) <= 6 - solved
    assert call("verify", "run.zarr").code == 0
    assert result_of("run.zarr") == whole[1]
    assert not Path("run.zarr/alphas").exists()
    assert not list(Path("run.zarr").glob("tmp-*"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_commits_what_was_found(number, work, whole):
    process = start(0, *LONG, "--checkpoint-every", "1000")
    try:
        deadline = time.monotonic() + PATIENCE
        while "machine 1 of 6" not in process.errors():
            assert time.monotonic() < deadline and process.poll() is None, "it did not come to the first machine"
            time.sleep(0.01)
        time.sleep(0.4)  # progress is told every few seconds alone: it is at a later one
        os.killpg(process.pid, number)
        _, rest = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 4, rest
    assert f"dkl resume {work / 'run.zarr'}" in told_of_commit(rest)
    (done,) = commits()
    assert 0 < done["machines"] <= 6
    assert f"resumable; machines solved: {done['solved']}" in call("info", "run.zarr").out
    goes_on(whole, done["solved"])


def test_killed_at_any_write(work, whole, seed):
    draw, count = random.Random(seed), whole[2]
    for at in (draw.randint(1, count // 2), draw.randint(count // 2, int(0.8 * count))):
        process = start(at, *LONG)
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, err
        if Path("run.zarr/config.json").exists():
            done = commits()
            goes_on(whole, done[-1]["solved"] if done else 0)
        shutil.rmtree("run.zarr", ignore_errors=True)


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def check_full_disk(at, whole):
    """No room from write `at` on. How many commits there were, or None where the run was not even begun."""
    with pytest.MonkeyPatch.context() as patch:
        small_blocks.Writes(patch.setattr, full, at)
        answer = call(*LONG)
    assert answer.code == 5, (at, answer.err)
    told = answer.err.splitlines()[-1]
    assert "No space left on device" in told and "run.zarr" in told, (at, told)
    if not Path("run.zarr/config.json").exists():
        assert not Path("run.zarr").exists()
        return None
    assert "free space on that disk" in told, (at, told)
    done = commits()
    goes_on(whole, done[-1]["solved"] if done else 0)
    shutil.rmtree("run.zarr")
    return len(done)


@pytest.mark.exhaustive
def test_a_disk_that_fills_up(work, whole, seed):
    draw = random.Random(seed)
    places = [int((k + draw.random()) / 5 * 0.9 * whole[2]) + 1 for k in range(5)]
    assert len({check_full_disk(at, whole) for at in places}) >= 3, "too few stages were met"


@pytest.mark.slow
def test_a_disk_that_fills_up_at_every_write(work, whole):
    for at in range(1, int(0.95 * whole[2])):
        check_full_disk(at, whole)


@pytest.fixture
def stopped(work, monkeypatch):
    """run.zarr that a full disk ended after seven commits of twelve."""
    with pytest.MonkeyPatch.context() as patch:
        real = RunStore.log

        def log(self, **event):
            real(self, **event)
            if event["event"] == "commit" and event["machines"] == 4:
                full()

        patch.setattr(RunStore, "log", log)
        assert call(*LONG).code == 5
    assert commits()[-1]["solved"] == 3
    return work / "run.zarr"


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def chunk(run, pattern):
    return next(path for path in sorted(run.glob(pattern)) if path.is_file())


DAMAGED = {
    "nothing": (lambda run: None, 3),
    "a solver's state": (lambda run: flipped(chunk(run, "alphas/alphas-*/vectors/c/*")), 0),
    "no states": (lambda run: chunk(run, "alphas/alphas-*/vectors/c/*").unlink(), 0),
    "the manifest": (lambda run: flipped(chunk(run, "alphas/alphas-*/MANIFEST.json")), 0),
    "all": (lambda run: shutil.rmtree(run / "alphas"), 0),
    "a foreign folder": (lambda run: (run / "alphas" / "alphas-old").mkdir(), 3),
}


@pytest.mark.parametrize("case", but_for(DAMAGED.keys() - {"a solver's state", "a foreign folder"}, DAMAGED))
def test_damaged_states_are_computed_anew(case, stopped, whole):
    damage, solved = DAMAGED[case]
    damage(stopped)
    assert f"machines solved: {solved}" in call("info", "run.zarr").out or not solved
    goes_on(whole, solved)


def test_rounds_of_one_large_machine_are_kept(work):
    """Beyond the rows that are solved at once: ended between rounds, it goes on from the state of the last one."""
    X, numbers = rows_and_labels(2400, 2)
    np.savez("X.npz", X=X + 1.5 * np.eye(2, 3)[numbers], y=numbers)  # far apart: few rows count
    assert call(*("whole.zarr" if word == "run.zarr" else word for word in FIT)).code == 0
    with pytest.MonkeyPatch.context() as patch:
        real, seen = MachineCheckpointer.on_state, []

        def on_state(self, machine, n, state, cached):
            real(self, machine, n, state, cached)
            seen.append(state)
            if len(seen) == 2:
                full()

        patch.setattr(MachineCheckpointer, "on_state", on_state)
        assert call(*FIT, *EACH).code == 5
    assert all(len(state.rows) < 2400 and state.inner is None for state in seen)
    (kept,) = RunStore.open("run.zarr").events()[-1:]
    assert (kept["machines"], kept["solved"]) == (1, 0)
    assert "resumable; machines solved: 0" in call("info", "run.zarr").out
    with pytest.MonkeyPatch.context() as patch:
        begun, real_round = [], _WorkingSetState.round

        def round(self, *given):
            begun.append(self.rows)
            return real_round(self, *given)

        patch.setattr(_WorkingSetState, "round", round)
        assert call("resume", "run.zarr").code == 0
    assert not any(np.array_equal(rows, state.rows) for rows in begun for state in seen)  # these rounds were over
    assert call("verify", "run.zarr").code == 0
    assert result_of("run.zarr") == result_of("whole.zarr")


KINDS = {
    "gradient": (150, 2, ("--solver", "gradient", "--tol", "1e-3")),
    "level": (80, 3, ("--solver", "level", "--tol", "1e-2")),
    "two kernels": (100, 3, ("--kernel", "rbf", "--kernel", "poly", "--tol", "1e-4")),
    "float32": (150, 3, ("--dtype", "float32", "--tol", "1e-9")),
    "working sets": (2400, 2, ("--C", "10", "--tol", "1e-8")),
}


@pytest.mark.parametrize("kind", but_for(KINDS.keys() - {"float32"}, KINDS))
def test_other_solvers_killed_at_any_write(kind, work, seed):
    n, classes, options = KINDS[kind]
    X, names = rows_and_labels(n, classes)
    np.savez("X.npz", X=X, y=names)
    with pytest.MonkeyPatch.context() as patch:
        writes = small_blocks.Writes(patch.setattr, lambda: None)
        assert call(*FIT, *options, *EACH).code == 0
    Path("run.zarr").rename("whole.zarr")
    process = start(random.Random(seed).randint(writes.count // 4, int(0.9 * writes.count)), *FIT, *options, *EACH)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, err
    assert call("resume", "run.zarr").code == 0
    assert call("verify", "run.zarr").code == 0
    assert result_of("run.zarr") == result_of("whole.zarr")

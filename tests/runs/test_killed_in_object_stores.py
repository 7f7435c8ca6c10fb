"""Runs in an object store that are killed at a commit, and resumed to the bytes of an undisturbed run in a folder."""

import functools

import pytest
import small_blocks
from command_line import call
from command_runs import bytes_of
from repeats import but_for
from run_cases import CASES

import dkl
from dkl.io.paths import ObjectPath
from dkl.stores.object_commits import RunCommits
from dkl.stores.object_runs import ObjectRun

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")


def options(task, files):
    case = CASES[task]
    named = [word if word.startswith("--") else files(word) for word in case.files]
    return ["fit", task, *named, *case.options, "--threads", "1", "--no-picture"]


def often(task):
    steps = {"pairwise": "10", "regression": "1", "svc": "1"}
    return ["--checkpoint-every", steps[task]] if task in steps else []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Of a learner, a folder with its inputs and the run of them, made when it is first asked for."""

    @functools.cache
    def folder(task):
        made = tmp_path_factory.mktemp(task)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(made)
            small_blocks.make_small(patch.setattr)
            CASES[task].write(made)
            assert call(*options(task, str), *often(task), "--out", "run.zarr").code in (0, 3)
        return made

    return folder


class Killed(BaseException):
    """What nothing catches."""


def killing(monkeypatch, number, after):
    create = RunCommits.create

    def killed(self, commit):
        if commit.number == number and not after:
            raise Killed
        create(self, commit)
        if commit.number == number:
            raise Killed

    monkeypatch.setattr(RunCommits, "create", killed)


KILLS = [(task, number, after) for task in CASES for number in (1, 2, 3, 4, 6) for after in (False, True)]
SHOWN = [("regression", 1, False), ("pairwise", 4, False), ("regression", 3, True)]


@pytest.mark.parametrize(("task", "number", "after"), but_for([kill for kill in KILLS if kill not in SHOWN], KILLS))
def test_a_run_killed_at_any_commit_is_resumed_to_the_same_bytes(
    task, number, after, undisturbed, tmp_path, monkeypatch
):
    """In fsspec's files in memory, which are as the server in what a commit needs, and cost less."""
    small_blocks.make_small(monkeypatch.setattr)
    monkeypatch.chdir(folder := undisturbed(task))
    words = [*options(task, str), *often(task), "--out", run := f"memory://{tmp_path.name}/run.zarr"]
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killing(patch, number, after)
        call(*words)
        raise Killed  # it has not come to so many
    answer = call(*words) if (number, after) == (1, False) else call("resume", run)
    assert answer.code in (0, 3), answer.err
    assert bytes_of(dkl.open_run(run).path, *CASES[task].result) == bytes_of(folder / "run.zarr", *CASES[task].result)
    newest = ObjectRun(ObjectPath(run))
    newest.fetch(tmp_path / "newest")
    there, needed = {*(newest.root / "files").listed()}, newest.last.objects()
    if there != needed:
        needed |= newest.commits.read(newest.last.number - 1).objects()
    assert there == needed, "what no commit needs is gone"

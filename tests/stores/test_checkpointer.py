"""One rule on when a state is committed; a commit that fails does not count; each has a line in the run's log."""

from contextlib import nullcontext

import pytest

from dkl.errors import DiskError, InterruptedRunError
from dkl.solvers.watch import Watch
from dkl.stores.checkpoints import (
    AT_END_SECONDS,
    COMMIT_SECONDS,
    COMMIT_SHARE,
    UNLIMITED,
    Checkpointer,
    CheckpointFolder,
    CommitRule,
    StateCheckpointer,
    vectors_of,
)
from dkl.stores.registry import Arrays
from dkl.stores.run import RunStore


@pytest.fixture
def clock(monkeypatch):
    """Time as the test sets it: clock[0]."""
    now = [0.0]
    monkeypatch.setattr("dkl.stores.checkpoints.time.monotonic", lambda: now[0])
    return now


def steps(rule, count):
    """The steps, of `count` more, at which a commit was due; they are committed."""
    found = []
    for _ in range(count):
        rule.step += 1
        if rule.due():
            found.append(rule.step)
            with rule.committing():
                pass
    return found


def test_every_so_many_steps():
    assert steps(CommitRule(3), 10) == [3, 6, 9]
    resumed = CommitRule(4)
    resumed.step = resumed.committed = 5
    assert resumed.steps_until_due() == 3 and steps(resumed, 8) == [8, 12]


def test_by_time(clock):
    rule = CommitRule()
    rule.step = 1
    assert rule.steps_until_due() == UNLIMITED
    for now, due in [(0.0, False), (COMMIT_SECONDS, False), (COMMIT_SECONDS + 1, True)]:
        clock[0] = now
        assert rule.due() is due
    with rule.committing():
        clock[0] += 2 * COMMIT_SECONDS / COMMIT_SHARE
    rule.step = 2
    clock[0] += 1.5 * COMMIT_SECONDS
    assert not rule.due()  # too dear to come so soon
    clock[0] += COMMIT_SECONDS
    assert rule.due()


def test_the_end_of_a_stage_is_worth_a_commit_sooner(clock):
    rule = CommitRule()
    rule.step = 1
    clock[0] = 0.5 * AT_END_SECONDS
    assert not rule.due(at_end=True)
    clock[0] = 1.5 * AT_END_SECONDS
    assert rule.due(at_end=True) and not rule.due()


@pytest.mark.parametrize("every", [1, "auto"])
def test_nothing_new_is_not_committed(every, clock):
    rule = CommitRule(every)
    clock[0] = 2 * COMMIT_SECONDS
    assert not rule.due() and not rule.due(at_end=True)


class Numbers(Checkpointer[int]):
    kept = None

    def write(self, state):
        if state < 0:
            raise DiskError("full")
        self.kept = state
        return {"number": state}


def test_a_commit_is_logged_and_one_that_fails_does_not_count(tmp_path):
    with pytest.raises(TypeError, match="abstract"):
        Checkpointer(None)
    run = RunStore.create(tmp_path / "run.zarr", {})
    keeper = Numbers(run, 1)
    assert not keeper.due()
    keeper.rule.step = 1
    with pytest.raises(DiskError, match="full"):
        keeper.commit(-1)
    assert keeper.due() and keeper.kept is None
    keeper.commit(7)
    assert not keeper.due() and keeper.kept == 7
    (event,) = run.events()
    assert (event["event"], event["number"]) == ("commit", 7) and event["cost"] >= 0
    run.close()


ARRAYS = Arrays(vectors_of("steps", "steps", "None."))


class Steps(StateCheckpointer[list[int]]):
    def __init__(self, run, every):
        super().__init__(run, every, CheckpointFolder(run.path / "steps", ARRAYS, "steps"), list[int], [])

    def step(self, number):
        self.state.append(number)
        self.step_done(at_end=False)

    def log_entries(self, state):
        return {"steps": list(state)}


def come_back(row):
    return True


come_back.comes_back = True


@pytest.mark.parametrize("by", ["Ctrl-C", "a callback that comes back", "itself", "an error"])
def test_what_is_held_is_kept_when_a_fit_is_interrupted(by, tmp_path):
    run = RunStore.create(tmp_path / "run.zarr", {})
    keeper, watch = Steps(run, 2), Watch([come_back])
    raised = {"Ctrl-C": KeyboardInterrupt, "an error": ZeroDivisionError}.get(by)
    expected = raised or (InterruptedRunError if by.startswith("a callback") else None)
    with pytest.raises(expected) if expected else nullcontext(), keeper.committed_at_interrupt(watch, "stopped"):
        for number in (1, 2, 3):
            keeper.step(number)
        if by.startswith("a callback"):
            watch.record({"iteration": 1})
        if raised:
            raise raised
    committed = [event["steps"] for event in run.events()]
    assert committed == ([[1, 2], [1, 2, 3]] if "a callback" in by or by == "Ctrl-C" else [[1, 2]])
    keeper.commit_rest()
    keeper.commit_rest()  # nothing has come since
    assert [event["steps"] for event in run.events()] == [[1, 2], [1, 2, 3]]
    assert Steps(run, 2).state == [1, 2, 3] and Steps(run, 2).number == 2
    run.close()

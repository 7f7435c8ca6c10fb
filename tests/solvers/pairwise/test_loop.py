"""The loop that all solvers share, driven by a stepper that counts, loses its state on demand and forgets nothing else."""

import pytest

from dkl.blocks.slabs.placement import RunCheckpoints
from dkl.errors import DiskError, StateLost, WorkersLostError
from dkl.solvers.pairwise.admm import Loop, NoCheckpoints
from dkl.solvers.watch import Outcome, Watch
from dkl.stores.checkpoints import COMMIT_SECONDS, COMMIT_SHARE


class Counter:
    """State: the iteration. `losses`: calls of advance (counted from 1) at which it is lost; `whole`: the last commit."""

    def __init__(self, *, lookahead=1, converges_at=None, breaks_at=None, losses=(), lost_recoveries=0):
        self.lookahead, self.converges_at, self.breaks_at = lookahead, converges_at, breaks_at
        self.losses, self.lost_recoveries = set(losses), lost_recoveries
        self.at, self.whole, self.calls, self.asked = 0, (0, {"iteration": 0, "converged": False}), 0, []

    def advance(self, steps):
        self.calls += 1
        self.asked.append(steps)
        if self.calls in self.losses:
            raise StateLost("a worker is gone")
        rows = []
        for _ in range(steps):
            self.at += 1
            done = self.at == self.converges_at
            rows.append({"iteration": self.at, "converged": done, "finite": self.at != self.breaks_at})
            if done:
                break
        return rows

    def recover(self):
        if self.lost_recoveries:
            self.lost_recoveries -= 1
            raise StateLost("another worker is gone")
        self.at = self.whole[0]
        return self.whole[0], dict(self.whole[1])


class Commits:
    """Commits the counter's state every `every` iterations; what was seen is in `seen`."""

    def __init__(self, stepper, every=1 << 30, losses=()):
        self.stepper, self.every, self.losses = stepper, every, list(losses)
        self.seen, self.made = [], []

    def steps_until_due(self, iteration):
        return self.every - iteration % self.every

    def save(self, rows, *, force=False):
        self.seen += [row["iteration"] for row in rows]
        at = rows[-1]["iteration"]
        if at in self.losses:
            self.losses.remove(at)
            raise StateLost("lost while committing")
        if force or at % self.every == 0:
            self.made.append(at)
            self.stepper.whole = at, dict(rows[-1])


def iterations(loop):
    return [row["iteration"] for row in loop.watch.history]


def passive(function):
    function.passive = True
    return function


# -- limits and outcomes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [1, 3, 8, 100])
@pytest.mark.parametrize("max_iter", [1, 7, 24])
def test_the_limit_is_kept_whatever_is_under_way(lookahead, max_iter):
    stepper = Counter(lookahead=lookahead)
    loop = Loop(max_iter)
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    assert iterations(loop) == list(range(1, max_iter + 1)) and stepper.at == max_iter
    assert max(stepper.asked) <= lookahead
    seconds = [row["seconds"] for row in loop.watch.history]
    assert seconds == sorted(seconds) and seconds[0] >= 0


@pytest.mark.parametrize("lookahead", [1, 4])
def test_convergence_ends_the_run_and_is_committed(lookahead):
    stepper = Counter(lookahead=lookahead, converges_at=6)
    commits = Commits(stepper)
    loop = Loop(100, commits)
    assert loop.run(stepper) is Outcome.SOLVED
    assert iterations(loop) == commits.seen == [1, 2, 3, 4, 5, 6] and commits.made == [6]


def test_convergence_at_the_limit_counts_as_convergence():
    assert Loop(6).run(Counter(converges_at=6)) is Outcome.SOLVED
    assert Loop(5).run(Counter(converges_at=6)) is Outcome.ITERATION_LIMIT


def test_a_run_that_had_ended_is_not_gone_on_with():
    stepper = Counter()
    assert Loop(10).run(stepper, 6, {"iteration": 6, "converged": True}) is Outcome.SOLVED
    assert Loop(10).run(stepper, 10, {"iteration": 10, "converged": False}) is Outcome.ITERATION_LIMIT
    assert Loop(0).run(stepper) is Outcome.ITERATION_LIMIT
    assert stepper.calls == 0


def test_a_resumed_run_goes_on_from_its_iteration_and_its_seconds():
    stepper = Counter()
    stepper.at = 4
    loop = Loop(7)
    loop.watch.resume([{"iteration": k, "seconds": 100.0 * k} for k in range(1, 5)])
    assert loop.run(stepper, 4, {"iteration": 4, "converged": False}) is Outcome.ITERATION_LIMIT
    assert iterations(loop) == [1, 2, 3, 4, 5, 6, 7]
    assert 400.0 <= loop.watch.history[4]["seconds"] < 500.0


@pytest.mark.parametrize("lookahead", [1, 5])
def test_a_value_that_is_not_finite_ends_the_run_without_a_commit(lookahead):
    stepper, heard = Counter(lookahead=lookahead, breaks_at=3), []
    commits = Commits(stepper)
    loop = Loop(100, commits, Watch([passive(lambda row: heard.append(row["iteration"]))]))
    assert loop.run(stepper) is Outcome.NUMERICAL_ERROR
    assert commits.made == [] and heard == iterations(loop) == [1, 2, 3]


@pytest.mark.parametrize("lookahead", [1, 4])
def test_a_time_limit_ends_the_run_and_is_committed(lookahead):
    now = [0.0]
    stepper = Counter(lookahead=lookahead)
    commits = Commits(stepper)
    advance = stepper.advance

    def slow(steps):
        now[0] += steps
        return advance(steps)

    stepper.advance = slow
    loop = Loop(100, commits, Watch(time_limit=6.5, clock=lambda: now[0]))
    assert loop.run(stepper) is Outcome.TIME_LIMIT
    assert commits.made == [7 if lookahead == 1 else 8] and iterations(loop) == list(range(1, commits.made[0] + 1))


# -- callbacks --------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_in_order_with_rows_of_their_own():
    heard = []

    def first(row):
        heard.append(("first", row["iteration"]))
        row.clear()  # a row of its own: nobody else is harmed

    loop = Loop(3, watch=Watch([first, lambda row: heard.append(("second", row["iteration"], "seconds" in row))]))
    loop.run(Counter())
    assert heard == [call for k in (1, 2, 3) for call in (("first", k), ("second", k, True))]
    assert iterations(loop) == [1, 2, 3]


def test_true_ends_the_run_once_all_have_heard_and_the_state_is_committed():
    stepper, heard = Counter(lookahead=8), []
    commits = Commits(stepper)
    callbacks = [lambda row: row["iteration"] == 4, lambda row: heard.append(row["iteration"])]
    loop = Loop(100, commits, Watch(callbacks))
    assert loop.run(stepper) is Outcome.STOPPED
    assert iterations(loop) == heard == [1, 2, 3, 4] and commits.made == [4]


@pytest.mark.parametrize("answer", [None, False, 1, "yes", [True]])
def test_nothing_but_true_ends_the_run(answer):
    assert Loop(3, watch=Watch([lambda row: answer])).run(Counter()) is Outcome.ITERATION_LIMIT


def test_convergence_comes_before_a_callback_s_wish():
    assert Loop(9, watch=Watch([lambda row: row["iteration"] == 5])).run(Counter(converges_at=5)) is Outcome.SOLVED


def test_who_only_looks_lets_iterations_run_ahead():
    stepper, heard = Counter(lookahead=4), []
    look = passive(lambda row: heard.append(row["iteration"]))
    Loop(10, watch=Watch([look, look])).run(stepper)
    assert stepper.asked == [4, 4, 2] and heard == [k for k in range(1, 11) for _ in range(2)]
    stepper = Counter(lookahead=4)
    Loop(10, watch=Watch([look, lambda row: None])).run(stepper)
    assert stepper.asked == [1] * 10


def test_an_error_in_a_callback_is_the_caller_s():
    def fail(row):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Loop(3, watch=Watch([fail])).run(Counter())


# -- commits ----------------------------------------------------------------------------------------------------------


class Run:
    """What RunCheckpoints asks of a run and a placement."""

    def __init__(self):
        self.logged, self.committed, self.published, self.fsynced, self.abandoned, self.full = [], [], [], 0, 0, False

    def generations(self):
        return self

    def fsync(self):
        self.fsynced += 1

    def log(self, **event):
        self.logged.append(event)

    def commit(self, generations, iteration, carry):
        if self.full:
            raise DiskError("full")
        assert carry["iteration"] == iteration
        self.committed.append(iteration)

    def abandon(self):
        self.abandoned += 1

    def publish_if_reachable(self):
        self.published.append(self.committed[-1])


@pytest.fixture
def clock(monkeypatch):
    """Time as the test sets it: clock[0]."""
    now = [0.0]
    monkeypatch.setattr("dkl.stores.checkpoints.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("lookahead", [1, 3, 8, 64])
@pytest.mark.parametrize(("every", "wanted"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6, 7]), (7, [7]), (50, [7])])
def test_commits_come_every_so_many_iterations_and_at_the_end(lookahead, every, wanted):
    run = Run()
    stepper = Counter(lookahead=lookahead)
    Loop(7, RunCheckpoints(run, lambda: run, every)).run(stepper)
    assert run.committed == run.published == wanted and run.fsynced == 1
    assert [event["iteration"] for event in run.logged if event["event"] == "iteration"] == list(range(1, 8))
    assert [event["iteration"] for event in run.logged if event["event"] == "commit"] == wanted


def test_a_resumed_run_keeps_the_cadence():
    run = Run()
    stepper = Counter(lookahead=8)
    stepper.at = 5
    Loop(13, RunCheckpoints(run, lambda: run, 4)).run(stepper, 5)
    assert run.committed == [8, 12, 13] and stepper.asked == [3, 4, 1]


def test_automatic_commits_come_by_time(clock):
    run = Run()
    tick = COMMIT_SECONDS / 10

    def pass_time(row):
        clock[0] += tick

    Loop(35, RunCheckpoints(run, lambda: run, "auto"), Watch([pass_time])).run(Counter())
    assert run.committed == [11, 22, 33, 35]


def test_dear_commits_come_more_seldom(clock):
    run, cost = Run(), 2.5 * COMMIT_SECONDS / COMMIT_SHARE
    commit = run.commit

    def slow_commit(*arguments):
        clock[0] += cost
        commit(*arguments)

    run.commit = slow_commit

    def pass_time(row):
        clock[0] += COMMIT_SECONDS

    Loop(12, RunCheckpoints(run, lambda: run, "auto"), Watch([pass_time])).run(Counter())
    assert run.committed == [2, 5, 8, 11, 12]  # the first knows no cost yet; then one in 2.5 x 30 seconds


def test_a_commit_that_fails_gives_its_room_back():
    run = Run()
    run.full = True
    with pytest.raises(DiskError, match="full"):
        Loop(5, RunCheckpoints(run, lambda: run, 2)).run(Counter())
    assert run.abandoned == 1 and not run.committed


def test_without_a_store_nothing_bounds_the_steps():
    none = NoCheckpoints()
    none.save([{"iteration": 1}], force=True)
    assert none.steps_until_due(3) > 10**6


# -- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [1, 3])
@pytest.mark.parametrize("losses", [[1], [3], [2, 3], [2, 4, 5, 9]])
def test_a_loss_sends_the_run_back_to_its_last_commit(lookahead, losses):
    stepper = Counter(lookahead=lookahead, losses=losses)
    commits = Commits(stepper, every=4)
    loop = Loop(18, commits)
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    assert loop.restarts == len(losses)
    assert iterations(loop) == list(range(1, 19))
    assert sorted(set(commits.made)) == [4, 8, 12, 16, 18]
    repeated = len(commits.seen) - 18
    assert repeated <= 3 * len(losses), "at most the iterations since the last commit are repeated"


def test_rows_after_the_commit_are_those_done_again():
    stepper = Counter(losses=[6])
    first = []
    watch = Watch([lambda row: first.append((row["iteration"], row["seconds"]))])
    loop = Loop(9, Commits(stepper, every=3), watch)
    loop.run(stepper)
    assert [k for k, _ in first] == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]
    assert [(row["iteration"], row["seconds"]) for row in loop.watch.history] == first[:3] + first[5:]


def test_without_a_commit_the_run_starts_anew():
    stepper = Counter(losses=[6])
    loop = Loop(9)
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    assert iterations(loop) == list(range(1, 10)) and loop.restarts == 1 and stepper.calls == 15


def test_a_loss_while_committing_is_a_loss():
    stepper = Counter()
    commits = Commits(stepper, every=3, losses=[6])
    loop = Loop(8, commits)
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    assert iterations(loop) == list(range(1, 9)) and loop.restarts == 1 and commits.made == [3, 6, 8]


def test_losses_while_recovering_count_too():
    stepper = Counter(losses=[2], lost_recoveries=3)
    loop = Loop(4)
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    assert loop.restarts == 4 and iterations(loop) == [1, 2, 3, 4]


def test_a_loss_after_the_last_commit_of_a_run_that_had_converged():
    """The state came to its end, was committed, and is lost before anybody asks for it."""
    stepper = Counter(converges_at=5)
    loop = Loop(9, Commits(stepper, every=3, losses=[5]))
    assert loop.run(stepper) is Outcome.SOLVED
    assert iterations(loop) == [1, 2, 3, 4, 5] and loop.restarts == 1
    lost = Counter(losses=[1])
    lost.whole = 5, {"iteration": 5, "converged": True}
    again = Loop(9)
    again.watch.resume(loop.watch.history)
    assert again.run(lost, 4, {"iteration": 4, "converged": False}) is Outcome.SOLVED
    assert iterations(again) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["advance", "recover"])
def test_more_losses_than_allowed_end_the_run(kind):
    endless = {"losses": range(1, 1000)} if kind == "advance" else {"losses": [1], "lost_recoveries": 1000}
    loop = Loop(9, max_restarts=3)
    with pytest.raises(
        WorkersLostError, match=r"lost 4 times without a commit between \((a|another) worker is gone\).*dkl resume"
    ):
        loop.run(Counter(**endless))


def test_a_run_that_gets_on_may_lose_any_number_of_workers():
    stepper = Counter(losses=range(1, 60, 2))
    commits = Commits(stepper, every=1)
    loop = Loop(30, commits, max_restarts=3)
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    assert loop.restarts > 9 and iterations(loop) == list(range(1, 31))


def test_a_start_may_meet_losses_too():
    loop = Loop(9)
    assert loop.begin(Counter()) == (0, {"iteration": 0, "converged": False})
    assert loop.restarts == 0
    assert loop.begin(Counter(lost_recoveries=2))[0] == 0
    assert loop.restarts == 2


def test_the_end_state_is_read_again_after_a_loss():
    stepper = Counter()
    loop = Loop(7, Commits(stepper, every=5))
    assert loop.run(stepper) is Outcome.ITERATION_LIMIT
    stepper.whole = 5, {"iteration": 5, "converged": False}
    reads = []

    def read():
        reads.append(stepper.at)
        if len(reads) < 3:
            stepper.at = -1
            raise StateLost("lost while reading")
        return stepper.at

    assert loop.finish(stepper, read) == 7
    assert loop.restarts == 2 and iterations(loop) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("every", [2, 1 << 30])
def test_a_state_that_is_lost_after_the_run_was_stopped_is_brought_to_where_it_stopped(every):
    heard = []

    def stop_at_five(row):
        heard.append(row["iteration"])
        return row["iteration"] == 5

    stepper = Counter(lookahead=4)
    commits = Commits(stepper, every=every)
    loop = Loop(9, commits, Watch([stop_at_five]))
    assert loop.run(stepper) is Outcome.STOPPED
    stepper.whole = (
        (4, {"iteration": 4, "converged": False}) if every == 2 else (0, {"iteration": 0, "converged": False})
    )
    lost = [True]

    def read():
        if lost.pop():
            lost.append(False)
            raise StateLost("lost while reading")
        return stepper.at

    assert loop.finish(stepper, read) == 5
    assert iterations(loop) == heard == [1, 2, 3, 4, 5]
    assert loop.run(stepper, 5) is Outcome.STOPPED

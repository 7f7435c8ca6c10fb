"""History, callbacks and limits of a run, by themselves."""

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dkl.errors import InterruptedRunError
from dkl.solvers.watch import Outcome, Result, Stall, Watch, remedies, verdict


class Clock:
    """Time as the test sets it."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def row(iteration, **more):
    return {"iteration": iteration, **more}


def iterations(watch):
    return [(entry.get("stage"), entry["iteration"]) for entry in watch.history]


# -- rows ---------------------------------------------------------------------------------------------------------------


def test_rows_have_their_stage_their_seconds_and_what_they_count_on_from():
    clock = Clock()
    watch = Watch(clock=clock)
    stage = watch.stage("solve", of=9, start={"iteration": 40, "products": 7}, output=1)
    clock.now += 2.5
    assert stage.record(row(1, products=3, objective=1.0)) is None
    inner = stage.stage(start={"iteration": 2}, rows=5)
    assert inner.record(row(1)) is None
    first, second = watch.history
    assert first == {
        "stage": "solve", "of": 9, "output": 1, "iteration": 41, "products": 10, "objective": 1.0, "seconds": 2.5,
    }  # fmt: skip
    assert second == {"stage": "solve", "of": 9, "output": 1, "rows": 5, "iteration": 43, "seconds": 2.5}
    assert stage.history == watch.history and inner.history == [second]


def test_a_row_may_say_its_own_seconds():
    watch = Watch(clock=Clock())
    watch.record(row(1, seconds=77.0))
    assert watch.history[0]["seconds"] == 77.0


def test_rows_of_workers_share_the_names_of_their_columns():
    """Each that is read from bytes has its own, which are most of what a history of ten thousand rows takes."""
    watch = Watch()
    for _ in range(2):
        watch.record(json.loads('{"iteration": 1, "objective of a worker": 1.5}'))
    first, second = (next(name for name in row if name.startswith("obj")) for row in watch.history)
    assert first is second


def test_the_history_is_in_the_order_of_the_stages_whenever_they_record():
    watch = Watch()
    first, second = watch.stage("first"), watch.stage("second")
    for iteration in (1, 2):
        for stage in (second, first):
            stage.record(row(iteration))
    watch.record(row(0))
    assert iterations(watch) == [("first", 1), ("first", 2), ("second", 1), ("second", 2), (None, 0)]


def test_stages_on_threads_do_not_mix_and_callbacks_come_one_at_a_time():
    busy, overlaps, seen = threading.Lock(), [], []

    def callback(given):
        overlaps.append(not busy.acquire(blocking=False))
        seen.append((given["stage"], given["iteration"]))
        busy.release()

    watch = Watch([callback])
    stages = [watch.stage(f"stage {number}") for number in range(8)]
    start = threading.Barrier(8)

    def work(stage):
        start.wait()
        for iteration in range(50):
            stage.record(row(iteration))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, stages))
    assert not any(overlaps)
    assert iterations(watch) == [(f"stage {number}", k) for number in range(8) for k in range(50)]
    assert sorted(seen) == sorted(iterations(watch))
    for number in range(8):
        assert [k for name, k in seen if name == f"stage {number}"] == list(range(50))


def test_quiet_watches_keep_and_show_nothing():
    seen = []
    watch = Watch([seen.append])
    quiet = watch.quiet()
    assert quiet.record(row(1)) is None and quiet.stage("inner").record(row(1)) is None
    assert watch.history == quiet.history == seen == []
    watch.stage("loud").record(row(1))
    assert len(seen) == 1


def test_resumed_rows_come_first_and_the_clock_continues():
    clock = Clock()
    watch = Watch(clock=clock)
    stage = watch.stage("admm")
    stage.resume([row(1, seconds=5.0), row(2, seconds=8.0)])
    clock.now += 1.0
    stage.record(row(3))
    assert [(entry["stage"], entry["iteration"], entry["seconds"]) for entry in watch.history] == [
        ("admm", 1, 5.0), ("admm", 2, 8.0), ("admm", 3, 9.0),
    ]  # fmt: skip
    assert watch.n_rows == stage.n_rows == 3
    stage.roll_back(1)
    assert iterations(watch) == [("admm", 1)] and watch.n_rows == 1


def test_seconds_of_earlier_sessions_come_before_those_of_this_one():
    """Whenever in it stages are resumed, and in whatever order; rows of the history never come before what is done."""
    clock = Clock()
    watch = Watch(clock=clock)
    clock.now += 2.0
    watch.stage("second").resume([row(1, seconds=5.0), row(2, seconds=4.0)])
    assert (watch.earlier, watch.seconds) == (5.0, 7.0)
    clock.now += 1.0
    watch.stage("first").resume([row(1, seconds=3.0)])
    watch.stage("none").resume([])
    assert (watch.earlier, watch.seconds, watch.stage("third").seconds) == (5.0, 8.0, 8.0)


# -- callbacks ----------------------------------------------------------------------------------------------------------


def test_callbacks_get_copies_in_order_and_those_of_a_stage_its_rows_alone():
    heard = []

    def spoil(given):
        heard.append(("root", given["iteration"]))
        given.clear()

    watch = Watch([spoil])
    watch.stage(callbacks=[lambda given: heard.append(("stage", given["iteration"]))]).record(row(1))
    watch.record(row(2))
    assert heard == [("root", 1), ("stage", 1), ("root", 2)]
    assert [entry["iteration"] for entry in watch.history] == [1, 2]


@pytest.mark.parametrize("answer", [None, False, 1, "yes", [True]])
def test_only_true_ends_the_run(answer):
    assert Watch([lambda given: answer]).record(row(1)) is None


def test_true_ends_the_run_for_all_stages_once_all_callbacks_have_heard_it():
    heard = []
    watch = Watch([lambda given: given["iteration"] == 2, lambda given: heard.append(given["iteration"])])
    first, second = watch.stage("first"), watch.stage("second")
    assert first.record(row(1)) is None
    assert first.record(row(2)) is Outcome.STOPPED
    for later in (first, second, watch, watch.quiet(), second.stage("new")):
        assert later.record(row(3)) is Outcome.STOPPED and later.outcome is Outcome.STOPPED
    assert heard == [1, 2] and iterations(watch) == [("first", 1), ("first", 2)]
    assert not watch.is_interrupted
    watch.raise_if_interrupted("nothing")


def test_rows_that_came_together_are_all_shown_unless_the_run_had_ended():
    heard = []
    watch = Watch([lambda given: heard.append(given["iteration"]) or given["iteration"] == 2])
    assert watch.record_all([row(1), row(2), row(3)]) is Outcome.STOPPED
    assert watch.record_all([row(4)]) is Outcome.STOPPED
    assert heard == [1, 2, 3] and [entry["iteration"] for entry in watch.history] == [1, 2, 3, 4]


def test_who_comes_back_wants_no_result():
    def interrupt(given):
        return True

    interrupt.comes_back = True
    watch = Watch([interrupt])
    assert watch.stage().record(row(1)) is Outcome.STOPPED
    assert watch.is_interrupted
    with pytest.raises(InterruptedRunError, match="stopped somewhere; resume"):
        watch.raise_if_interrupted("stopped somewhere")


def test_whether_all_callbacks_only_look():
    def look(given):
        pass

    look.passive = True
    assert Watch().is_passive and Watch([look]).is_passive
    assert not Watch([look, lambda given: None]).is_passive
    assert not Watch([look]).stage(callbacks=[lambda given: None]).is_passive


def test_callbacks_are_closed_however_it_ends():
    class Closing:
        closed = 0

        def __call__(self, given):
            raise KeyError("mine")

        def close(self):
            self.closed += 1

    callback = Closing()
    with pytest.raises(KeyError, match="mine"), Watch([callback, lambda given: None]) as watch:
        watch.stage().record(row(1))
    assert callback.closed == 1


# -- limits -------------------------------------------------------------------------------------------------------------


def test_the_time_limit_ends_the_run_after_a_row():
    clock = Clock()
    watch = Watch(time_limit=10.0, clock=clock)
    stage = watch.stage("solve")
    clock.now += 10.0
    assert stage.record(row(1)) is None
    clock.now += 0.5
    assert stage.record(row(2)) is Outcome.TIME_LIMIT
    assert stage.record(row(3)) is watch.quiet().record(row(3)) is Outcome.TIME_LIMIT
    assert iterations(watch) == [("solve", 1), ("solve", 2)]


def test_the_time_limit_is_seen_between_rows_too():
    clock = Clock()
    watch = Watch(time_limit=1.0, clock=clock)
    assert watch.outcome is None
    clock.now += 2.0
    assert watch.quiet().record(row(1)) is Outcome.TIME_LIMIT and watch.outcome is Outcome.TIME_LIMIT


@pytest.mark.parametrize("bad", [row(1, objective=math.nan), row(1, objective=math.inf), row(1, finite=False)])
def test_a_value_that_is_not_finite_ends_one_stage_alone(bad):
    watch = Watch()
    assert watch.stage("bad").record(bad) is Outcome.NUMERICAL_ERROR
    assert watch.outcome is None and watch.stage("good").record(row(1, objective=0.0)) is None
    assert watch.record_all([row(1), bad, row(2)]) is Outcome.NUMERICAL_ERROR
    assert [entry["iteration"] for entry in watch.history] == [1, 1, 1, 1]
    assert watch.record(row(1, relative_gap=math.inf, objective=0.0)) is None  # as where nothing is proven yet


def test_stall_counts_checks_in_a_row():
    stall = Stall(2)
    checks = [False, False, True, False, False, False, False, True]
    assert [stall.check(progressed) for progressed in checks] == [False] * 5 + [True, True, False]


def test_the_verdict_puts_what_is_solved_first_and_the_solvers_limits_last():
    ended = {"at_limit": True, "stalled": True}
    assert verdict(Outcome.STOPPED, solved=True, **ended) is Outcome.SOLVED
    assert verdict(Outcome.STOPPED, solved=False, **ended) is Outcome.STOPPED
    assert verdict(None, solved=False, **ended) is Outcome.ITERATION_LIMIT
    assert verdict(None, solved=False, stalled=True) is Outcome.STALLED
    assert verdict(None, solved=False) is None


# -- outcomes -----------------------------------------------------------------------------------------------------------


def test_every_outcome_but_the_good_one_has_a_remedy():
    own = remedies(iteration_limit="raise max_iter", stalled="raise tol", numerical_error="scale", time_limit="hurry")
    assert set(own) == set(Outcome)
    assert [outcome for outcome in Outcome if not own[outcome]] == [Outcome.SOLVED]
    assert own[Outcome.ITERATION_LIMIT] == "raise max_iter" and own[Outcome.TIME_LIMIT] == "hurry"
    assert [outcome for outcome in Outcome if outcome.converged] == [Outcome.SOLVED]
    assert [outcome for outcome in Outcome if outcome.is_wanted] == [Outcome.SOLVED, Outcome.STOPPED]
    assert Result(Outcome.STALLED, 1, [], {}, 0, remedy="raise tol").message == "stalled: raise tol"
    assert Result(Outcome.SOLVED, 1, [], {}, 0, proven=0.0, asked=1e-6).message == "solved"

"""Processes that are killed, interrupted or stopped at random moments of runs of every learner: each run ends, or is resumed,
with the bytes of an undisturbed one, nothing of it stays behind, and nothing that it had started lives on.

pytest -m slow -n0 tests/failures -k R3 --trials 10 prints what came of ten trials of each case. Seconds are told and not judged: how soon a
command ends that was interrupted (R4), or lost its scheduler (R5), and how long a worker that hangs holds one up (R6).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import disturbances as d
import pytest
from hostile_runs_trials import EVERY

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", EVERY)]
KILLED, INTERRUPTED, LACKING = -signal.SIGKILL, 4, 5


class Figure:
    """Trials of a case in a place, and the row that they make in the table."""

    def __init__(self, runs_at: Callable, checked: Callable, seeds: Sequence[int]) -> None:
        self.runs_at, self.checked, self.seeds = runs_at, checked, seeds

    def __call__(self, figure, name, place, disturb, *, told, times=1, worker="nanny"):
        runs = self.runs_at(place, worker)
        found = (runs.trial(name, seed, disturb, times=times, told=told) for seed in self.seeds)
        return self.checked(figure, f"{name}, {place}", found)


@pytest.fixture
def figure(runs_at, checked, seeds):
    return Figure(runs_at, checked, seeds)


@pytest.mark.parametrize("place", ["own", "cluster"])
def test_R1_R2_workers_and_nannies_are_killed(name, place, figure):
    figure("R1, R2: workers and nannies", name, place, d.kill_workers, told=(INTERRUPTED, LACKING))


def test_R1_workers_that_nobody_starts_again(name, figure):
    figure("R1: workers, others come", name, "cluster", d.kill_workers, told=(INTERRUPTED, LACKING), worker="worker")


@pytest.mark.parametrize("place", ["threads", "own"])
def test_R3_the_whole_tree_is_killed(name, place, figure):
    """Up to three times a run."""
    figure("R3: the whole tree", name, place, d.kill_tree, times=3, told=[KILLED])


@pytest.mark.parametrize("place", ["threads", "own"])
def test_R4_an_interrupt(name, place, figure):
    figure("R4: SIGTERM, SIGINT", name, place, d.interrupt, told=[INTERRUPTED])


def test_R5_the_scheduler_is_killed(name, figure):
    figure("R5: the scheduler", name, "cluster", d.kill_scheduler, told=[LACKING])


def test_R6_a_worker_hangs(name, figure):
    """Of the command's own, which it gives up after 25 to 50 s."""
    figure("R6: SIGSTOP for good", name, "own", d.stop_worker, told=[])


def test_R6_a_worker_pauses(name, figure):
    figure("R6: SIGSTOP, SIGCONT", name, "cluster", d.pause_worker, told=[])


def test_R7_all_workers_are_killed(name, figure):
    figure("R7: all workers", name, "cluster", d.kill_all_workers, told=[LACKING], worker="worker")


@pytest.mark.parametrize("place", ["own", "cluster"])
def test_R14_the_client_is_killed_and_its_tasks_go_on(name, place, figure):
    """Resumed at once on the same cluster; workers of its own end with it."""
    figure("R14: the client alone", name, place, d.kill_client, told=[KILLED])

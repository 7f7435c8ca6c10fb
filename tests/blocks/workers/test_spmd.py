"""One function that two workers run together: rows as they come, its end from here, errors, results, lost parts."""

import time

import pytest
from on_workers import counted, fails, joint_threads, owners_held

from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.blocks.workers.spmd import JointWork
from dkl.errors import InputError, StateLost


@pytest.fixture
def begun(client):
    """Starts a function on parts 10 and 20, and closes it in the end."""
    made = []

    def begin(function, parts=(10, 20)):
        cut = lambda workers: [lambda address, part=part: part for part in parts[:workers]]  # noqa: E731
        made.append(JointWork(Session(client), function, cut, waiting.Silence()))
        return made[-1]

    held = client.run(owners_held)
    yield begin
    for work in made:
        work.close()
        work.close()
    assert client.run(owners_held) == held


def test_rows_come_as_they_are_allowed_and_results_in_order(begun):
    work = begun(counted)
    assert work.advance(1, False) == ([{"iteration": 1, "sum": 30}], False)
    rows, is_done = work.advance(3, False)
    assert [row["iteration"] for row in rows] == [2, 3, 4] and not is_done
    rows, is_done = work.advance(100, False)
    assert [row["iteration"] for row in rows] == [5, 6, 7, 8, 9, 10] and is_done
    assert list(work.results()) == [(10, False), (20, False)]


def test_it_is_ended_from_here_at_the_row_it_stands_at(begun):
    work = begun(counted)
    work.advance(2, False)
    assert work.advance(1 << 40, True) == ([], True)
    assert list(work.results()) == [(10, True), (20, True)]


def test_an_error_of_the_function_is_raised_here(begun):
    work = begun(fails)
    work.advance(1, False)
    with pytest.raises(InputError, match="made up by 20"):
        work.advance(1, False)


def test_a_lost_part_is_told_and_the_others_are_let_go(begun, client):
    work = begun(counted)
    work.advance(1, False)
    client.run(slab_worker.forget, work.key, workers=[work.addresses[0]])
    with pytest.raises(StateLost):
        work.advance(5, False)


def test_fewer_parts_than_workers_and_two_works_at_a_time(begun):
    one, other = begun(counted, (7,)), begun(counted)
    assert len(one.addresses) == 1
    for work, total in ((one, 7), (other, 30), (one, 7)):
        assert work.advance(1, False)[0][0]["sum"] == total


def test_threads_of_what_is_closed_end(begun, client):
    work = begun(counted)
    work.advance(1, False)
    work.close()
    deadline = time.monotonic() + 20
    while any(client.run(joint_threads).values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(client.run(joint_threads).values())

"""Workers that are the scheduler's, but of which it hears nothing."""

from types import SimpleNamespace

import pytest

from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.blocks.workers.waiting import GIVE_UP_SECONDS, LOOK_AGAIN_SECONDS, Silence
from dkl.errors import StateLost, WorkersLostError


class Told(Session):
    """A session whose scheduler hears of workers "a" and "b" all the time, but for those that stand still."""

    def __init__(self, still):
        super().__init__("not started")
        self.now, self.still = 0.0, still

    def members(self):
        return self.known()

    def known(self):
        return {name: {"name": name, "last_seen": 0.0 if name in self.still else self.now} for name in "ab"}

    def require_scheduler(self):
        """It is there."""

    def passed(self, seconds):
        self.now += seconds


@pytest.fixture
def told(monkeypatch):
    """told(still): a session, whose clock is that of `waiting`."""

    def made(still):
        session = Told(still)
        clock = SimpleNamespace(monotonic=lambda: session.now, sleep=session.passed)
        monkeypatch.setattr(waiting, "time", clock)
        return session

    return made


def never(session, begin, addresses, look):
    """In place of `waiting.watched`: what is sent is never answered."""
    while session.now < 10 * GIVE_UP_SECONDS:
        session.passed(0.5)
        look()
    raise AssertionError("waited for what never answers")


def test_a_worker_is_silent_after_the_one_limit(told):
    session = told("b")
    silence, found = Silence(), []
    while not found:
        session.passed(0.5)
        found = silence.look(session.members())
    assert found == ["b"] and GIVE_UP_SECONDS <= session.now <= GIVE_UP_SECONDS + 1
    assert silence.answering(session) == ["a"]
    session.still = ""  # goes on
    assert silence.answering(session) == ["a", "b"]


def test_nothing_is_sent_before_it_is_known_whether_a_worker_answers(told):
    session = told("b")
    silence = Silence()
    for _ in range(2):
        silence.look(session.members())
        session.passed(LOOK_AGAIN_SECONDS)
    assert silence.answering(session) == ["a"] and session.now >= GIVE_UP_SECONDS


def test_what_is_sent_to_a_silent_worker_is_lost_and_the_next_leaves_it_out(told, monkeypatch):
    """It was stopped before it was first looked at, so that it counted as one that answers."""
    session = told("b")

    monkeypatch.setattr(waiting, "watched", never)
    silence = Silence()
    assert silence.answering(session) == ["a", "b"]
    with pytest.raises(StateLost, match="worker b does not respond"):
        session.send(bytes(10), ["b"], silence=silence)
    assert GIVE_UP_SECONDS <= session.now <= GIVE_UP_SECONDS + 1
    assert silence.answering(session) == ["a"]


def test_a_worker_that_did_not_respond_is_none_of_the_sessions_until_it_is_heard_of(told, monkeypatch):
    session = told("b")
    session.client = SimpleNamespace(
        sync=lambda asked, **how: asked(),
        scheduler=SimpleNamespace(identity=lambda: {"workers": session.known()}),
    )
    monkeypatch.setattr(session, "members", lambda: Session.members(session))
    monkeypatch.setattr(waiting, "watched", never)
    assert session.workers() == ["a", "b"]
    with pytest.raises(StateLost, match="worker b does not respond"):
        session.send(bytes(10))
    assert GIVE_UP_SECONDS <= session.now <= GIVE_UP_SECONDS + 1 and session.workers() == ["a"]
    session.still = ""
    session.passed(1.0)
    assert session.workers() == ["a", "b"]


def test_a_pause_of_this_process_says_nothing_of_the_workers(told):
    """It was stopped, or the machine was asleep, and the scheduler with it: nobody has been heard of since."""
    session = told("ab")
    silence = Silence()
    silence.look(session.members())
    session.passed(1000.0)
    assert silence.look(session.members()) == []


def test_where_all_are_silent_there_is_nobody(told):
    session = told("ab")
    silence = Silence()
    for _ in range(10):
        silence.look(session.members())
        session.passed(LOOK_AGAIN_SECONDS)
    with pytest.raises(WorkersLostError, match="none for 25 s"):
        silence.answering(session)

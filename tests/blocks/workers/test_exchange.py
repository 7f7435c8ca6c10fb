"""Parts for other owners: what is sent to one that takes nothing, or that fails."""

import asyncio
from types import SimpleNamespace

import distributed
import pytest
from patience import PATIENCE

from dkl.blocks.workers import exchange, waiting
from dkl.blocks.workers.exchange import OP, QUESTION, Exchange, Inbox, _receive, close_inbox
from dkl.errors import StateLost


async def answers(**message):
    return True


async def stands_still(**message):
    await asyncio.Event().wait()


async def has_forgotten(**message):
    return False


async def is_gone(**message):
    raise OSError("connection reset")


@pytest.fixture
def sent(monkeypatch):
    """sent(what, ...): owner 0 gives each of the others, which do that, a part."""
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.1)

    def send(*others):
        calls = dict(enumerate(others, start=1))
        worker = SimpleNamespace(handlers={}, rpc=lambda address: SimpleNamespace(**{OP: calls[address]}))
        monkeypatch.setattr(distributed, "get_worker", lambda: worker)
        exchange = Exchange("a run", 0, [0, *calls])
        return asyncio.run(asyncio.wait_for(exchange._send(1, dict.fromkeys(calls, "a part")), PATIENCE))

    yield send
    close_inbox("a run")


def test_an_owner_that_stands_still_is_not_waited_for_without_end(sent):
    """Its connection stays open, and nothing says that it is lost."""
    sent(answers, answers)
    with pytest.raises(StateLost, match="owner 2 of the slabs takes nothing: 0.1 s"):
        sent(answers, stands_still)


def test_one_that_fails_is_told_of_at_once(sent, monkeypatch):
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", PATIENCE)
    with pytest.raises(StateLost, match="does not answer: connection reset"):
        sent(stands_still, is_gone)
    with pytest.raises(StateLost, match="has forgotten its slabs"):
        sent(answers, has_forgotten)


def test_an_owner_whose_part_is_late_is_asked_until_it_comes(monkeypatch):
    monkeypatch.setattr(exchange, "ASK_SECONDS", 0.01)
    inbox, asked = Inbox(), []

    def ask():
        asked.append(1)
        if len(asked) == 3:
            inbox.put(5, 1, "the part")

    assert inbox.take(5, 1, ask) == "the part"
    assert len(asked) == 3


def test_one_that_no_longer_has_the_run_ends_the_waiting(monkeypatch):
    monkeypatch.setattr(exchange, "ASK_SECONDS", 0.01)

    def ask():
        raise StateLost("another owner has forgotten its slabs")

    with pytest.raises(StateLost, match="forgotten"):
        Inbox().take(5, 1, ask)


def test_a_question_is_answered_and_leaves_nothing(sent):
    assert _receive("a run that nobody has", QUESTION, 1, None) is False
    sent(answers)
    inbox = exchange._inboxes["a run"]
    assert _receive("a run", QUESTION, 1, None) is True
    assert not inbox._parts

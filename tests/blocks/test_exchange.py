"""Parts for other owners: what is sent to one that takes nothing, or that fails."""

import asyncio
from types import SimpleNamespace

import distributed
import pytest
from patience import PATIENCE

from dkl.blocks import waiting
from dkl.blocks.exchange import OP, Exchange, close_inbox
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

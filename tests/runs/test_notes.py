"""What a person at the command line is spared."""

import asyncio
import gc
import logging

import pytest

from dkl.runs.interrupt import notes


class ClientConnectionError(OSError):
    """As the package below has it."""

    __module__ = "aiohttp.client_exceptions"


def forgotten(error):
    """Have asyncio log the error of a task whose result nothing asks for."""

    async def fail():
        raise error

    async def main():
        asyncio.create_task(fail())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(main())


@pytest.mark.parametrize("is_shown, error", [(False, ClientConnectionError("refused")), (True, ValueError("a bug"))])
def test_tracebacks_of_requests_to_stores_are_not_shown(is_shown, error, caplog):
    with notes():
        forgotten(error)
    assert ("Task exception was never retrieved" in caplog.text) == is_shown, caplog.text
    logging.getLogger("asyncio").error("Unclosed client session")
    assert "Unclosed" not in caplog.text

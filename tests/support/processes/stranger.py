"""A process without the cluster's key, as another account of the same machine can start one: `python stranger.py ADDRESS...`.

Prints for each address of a scheduler, worker or nanny (tcp:// or tls://) or its pages (http://) what the stranger was told
there; nothing where he was turned away.
"""

import asyncio
import json
import sys
import urllib.request
from http.client import HTTPException

from distributed import Security
from distributed.comm.registry import get_backend

PAGES = ("info/main/workers.html", "json/counts.json", "metrics")
SECONDS = 60.0
"""For an answer. Who is turned away is so at once."""


async def told(address: str, security: Security) -> list[str]:
    """What a scheduler, worker or nanny greets with, having let us in: it would run what it is sent.

    A single attempt, as Dask itself would try again and again until its time is over.
    """
    scheme, _, place = address.partition("://")
    arguments = security.get_connection_args("client") if scheme == "tls" else {}
    try:
        comm = await asyncio.wait_for(get_backend(scheme).get_connector().connect(place, **arguments), SECONDS)
        try:
            await comm.write({"compression": None, "python": (3, 11), "pickle-protocol": 5})
            return sorted(await asyncio.wait_for(comm.read(), SECONDS))
        finally:
            comm.abort()
    except (OSError, TimeoutError):
        return []


def shown(address: str) -> list[str]:
    """The pages that a browser is shown."""
    found = []
    for page in PAGES:
        try:
            urllib.request.urlopen(f"{address}/{page}", timeout=SECONDS).close()
            found.append(page)
        except (OSError, HTTPException):  # HTTPError, as of 404, is an OSError
            pass
    return found


async def asked(address: str) -> list[str]:
    """Whatever he is told; where a certificate is wanted, with one of his own and with none."""
    if address.startswith("http"):
        return await asyncio.to_thread(shown, address)
    plain = address.replace("tls://", "tcp://")
    return [word for way in dict.fromkeys([address, plain]) for word in await told(way, Security.temporary())]


async def main(addresses: list[str]) -> None:
    """All addresses at once."""
    answers = await asyncio.gather(*map(asked, addresses))
    print(json.dumps(dict(zip(addresses, answers, strict=True))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

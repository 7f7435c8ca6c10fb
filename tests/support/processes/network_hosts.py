"""Several hosts on one machine: network namespaces, joined by a bridge, whose links can be cut. No right of the machine's
owner is needed where it lets its users make namespaces.

Addresses are private and seen inside these namespaces alone; all of it is gone with the processes that hold them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_USER, NEW_NET = 0x10000000, 0x40000000
"""CLONE_NEWUSER and CLONE_NEWNET of <sched.h>; `os.setns` is there from Python 3.12 on."""
HOLD = ("sleep", "infinity")


class Hosts:
    """The first is the hub, which has the bridge; pids: of the processes that hold each host's namespaces."""

    def __init__(self, holders: list[subprocess.Popen[bytes]]) -> None:
        self.pids = [holder.pid for holder in holders]
        self._ip("link", "add", "bridge", "type", "bridge")
        self._ip("address", "add", f"{self.address(0)}/24", "dev", "bridge")
        self._ip("link", "set", "bridge", "up")
        self._ip("link", "set", "lo", "up")
        for place in range(1, len(self.pids)):
            self._ip(
                "link", "add", f"to{place}", "type", "veth", "peer", "name", "port", "netns", str(self.pids[place])
            )
            self._ip("link", "set", f"to{place}", "master", "bridge", "up")
            self._ip("address", "add", f"{self.address(place)}/24", "dev", "port", place=place)
            self._ip("link", "set", "port", "up", place=place)
            self._ip("link", "set", "lo", "up", place=place)

    def address(self, place: int) -> str:
        return f"10.77.0.{place + 1}"

    def cut(self, place: int) -> None:
        """Packets from and to this host are lost, without a word to either side."""
        self._ip("link", "set", f"to{place}", "down")

    def mend(self, place: int) -> None:
        self._ip("link", "set", f"to{place}", "up")

    def _ip(self, *words: str, place: int = 0) -> None:
        subprocess.run([*_within(self.pids[place]), "ip", *words], check=True, capture_output=True, timeout=60)


def _within(pid: int) -> list[str]:
    return ["nsenter", "--preserve-credentials", "--target", str(pid), "--user", "--net"]


def why_not() -> str:
    """Why there can be no hosts here; nothing where there can."""
    try:
        given = [
            "unshare",
            "--map-root-user",
            "--net",
            "ip",
            "link",
            "add",
            "here",
            "type",
            "veth",
            "peer",
            "name",
            "there",
        ]
        tried = subprocess.run(given, capture_output=True, text=True, timeout=60)
    except OSError as error:
        return str(error)
    return "" if tried.returncode == 0 else tried.stderr.strip() or "refused"


@contextmanager
def network_hosts(count: int) -> Iterator[Hosts]:
    """A hub and others, `count` in all; they go with the context."""
    holders: list[subprocess.Popen[bytes]] = []
    try:
        for place in range(count):
            before = _within(holders[0].pid) if place else []
            own = ["--net"] if place else ["--map-root-user", "--net"]
            holder = subprocess.Popen([*before, "unshare", *own, *HOLD], stdin=subprocess.DEVNULL)
            holders.append(holder)
            while Path(f"/proc/{holder.pid}/comm").read_text().strip() != HOLD[0]:  # its namespaces are there by then
                assert holder.poll() is None, "no namespace could be made"
        yield Hosts(holders)
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def enter(pid: int) -> None:
    """This process, of one thread, goes on in the host that `pid` holds; 0: where it is."""
    if not pid:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for name, kind in (("user", NEW_USER), ("net", NEW_NET)):
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {name} of {pid}")
        os.close(descriptor)

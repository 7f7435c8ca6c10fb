"""A run's log: a line of JSON an iteration and an event. Lines that a crash cut short are ignored."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dkl.stores.disk import disk_errors
from dkl.stores.private_files import MODE
from dkl.stores.run_identity import KEY, require_identity

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

LONGEST = 1 << 20
"""Maximum number of characters of a line; a longer one is no line of ours."""


class EventLog:
    """The log of a run: the lines in a file, which one process adds to."""

    def __init__(self, path: Path, marks: dict[str, str]) -> None:
        """Set `path` and `marks`, the entries of each line, the run's identity among them."""
        self.path, self.marks = path, marks
        self._is_whole = False

    def append(self, event: Json) -> None:
        """Append a line to the log. Raises DiskError."""
        line = json.dumps({**self.marks, **event}, default=float) + "\n"
        with disk_errors("the log could not be written", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)
            try:
                size = os.fstat(descriptor).st_size
                if not self._is_whole and size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = "\n" + line  # a crash cut the last line short; ours is not to be lost with it
                self._is_whole = False  # should the write fail
                rest = line.encode()
                while rest:  # a disk that fills up takes a part, and says why of the rest alone
                    rest = rest[os.write(descriptor, rest) :]
                self._is_whole = True
            finally:
                os.close(descriptor)

    def require_own(self) -> None:
        """Raise StoreError for the log of another run, by its first event."""
        for event in self._events():
            return require_identity(event, self.marks[KEY], self.path)

    def read(self) -> list[Json]:
        """Return all events, as they came."""
        return list(self._events())

    def _events(self) -> Iterator[Json]:
        with suppress(OSError), open(self.path, encoding="utf-8", errors="replace") as file:
            while line := file.readline(LONGEST):
                with suppress(ValueError, RecursionError):  # cut short
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event

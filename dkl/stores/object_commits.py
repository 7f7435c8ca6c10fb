"""Commits in an object store: numbered objects, each created once, by a conditional put.

    s3://bucket/run/commits/00000007.json       its holder, time, and the checksum of its manifest; sealed
                    files/00000007-3f2a9c1b.json    the manifest: of every file of the run its object, bytes and crc32c

What a commit names is written before it. The put is conditional (If-None-Match: *): of two writers that both continue
commit 7 one creates commit 8, and the other is refused. commits/ only grows: a removed number could be given again.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import uuid
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from dkl.errors import DklError, InputError, ResourceError, StoreError
from dkl.io.paths import ObjectPath, status_of
from dkl.stores.seals import parsed_json, sealed_text

if TYPE_CHECKING:
    from dkl.stores.seals import Json

KIND, VERSION = "dkl-commit", 1
PLACE = re.compile(r"[0-9]{8}-[0-9a-f]{8}")
"""A folder below files/: number and attempt of the commit that its files came with."""
PROBE = "probe-"
"""Prefix of the name of an object that is created to try the store."""
EXISTS, CONFLICT = 412, 409
"""HTTP status of a conditional put where there is an object, and where another put is under way: that one may still fail."""
CONFLICTS, CONFLICT_SECONDS = 10, 0.5
"""Number of attempts at a put that conflicts with another, and the pause between them."""
SENT_TOGETHER = 16_000_000
"""Bytes that are under way at once: of small files together, of a large one in pieces."""
IN_PIECES: dict[str, dict[str, int]] = {
    "s3": {"chunksize": SENT_TOGETHER // 2, "max_concurrency": 1},
    "gs": {"chunksize": SENT_TOGETHER // 2},
}
"""Options for sending a large file in pieces, by kind of store."""
_IN_MEMORY = threading.Lock()
"""Lock of puts to fsspec's files in memory, which look for an object and then write it."""


class Entry(NamedTuple):
    """Size and checksum of a file of the run, and the folder below files/ of the commit it came with."""

    place: str
    size: int
    checksum: int


def _myself() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"


@dataclass(frozen=True)
class Commit:
    """A commit of a run: its number, its files, and the attempt and process that made it."""

    number: int
    attempt: str
    files: dict[str, Entry]
    holder: str = field(default_factory=_myself)

    @property
    def place(self) -> str:
        """Return the folder, below files/, of the files that are new in this commit."""
        return f"{self.number:08d}-{self.attempt}"

    def objects(self) -> set[str]:
        """Return the names, below files/, of all objects that the commit needs."""
        return {f"{self.place}.json", *(f"{entry.place}/{name}" for name, entry in self.files.items())}


class RunCommits:
    """The commits of one run in an object store."""

    def __init__(self, root: ObjectPath) -> None:
        self.root = root

    def require_conditional_puts(self) -> None:
        """Raise InputError for a store in which two writers would both believe that they had committed."""
        require_conditional_puts(self.root / f"{PROBE}{uuid.uuid4().hex[:8]}", self.root)

    def newest_number(self) -> int:
        """Return the number of the newest commit; 0 before the first."""
        # Listed, and not read from an object: that would have to be written again at each commit.
        names = (self.root / "commits").listed()
        return max((int(name[:8]) for name in names if re.fullmatch(r"[0-9]{8}[.]json", name)), default=0)

    def read(self, number: int) -> Commit:
        """Return commit `number`; StoreError if it or its manifest is damaged."""
        where, record = self._of(number), self._record(number)
        try:
            attempt, holder, checksum = str(record["attempt"]), str(record["holder"]), int(record["manifest"])
            if (record["kind"], record["version"]) != (KIND, VERSION) or not PLACE.fullmatch(f"00000000-{attempt}"):
                raise StoreError("not a commit of this version", where=str(where), got=record["version"])
            where = self.root / "files" / f"{number:08d}-{attempt}.json"
            text = where.read()
            # A manifest's seal says that it is whole, this sum that it is the one of this commit.
            if google_crc32c.value(text) != checksum:
                raise StoreError("not the manifest that was committed", where=str(where))
            listed = parsed_json(text, where, sealed=True)["files"]
            files = {name: Entry(str(place), int(size), int(crc)) for name, (place, size, crc) in listed.items()}
        except DklError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise StoreError("a damaged commit", where=str(where), got=f"{type(error).__name__}: {error}") from error
        for name, entry in files.items():
            # Names become paths here: one with ".." would be written outside the folder, and a seal does not say who made it.
            if not _is_inside(name) or not PLACE.fullmatch(entry.place) or entry.size < 0:
                raise StoreError("a commit of files that no run has", where=str(where), got=repr(name))
        return Commit(number, attempt, files, holder)

    def create(self, commit: Commit) -> None:
        """Write its manifest, and make it what readers see; its files are written.

        InputError where somebody else has made a commit of that number.
        """
        listed = {name: list(entry) for name, entry in sorted(commit.files.items())}
        text = sealed_text({"files": listed}).encode()
        # Before the number: a reader who sees it must find the manifest.
        (self.root / "files" / f"{commit.place}.json").write(text)
        facts = {"kind": KIND, "version": VERSION, "attempt": commit.attempt, "holder": commit.holder}
        # By the token no other record has these bytes, by which `create` knows its own.
        record = {**facts, "at": time.time(), "manifest": int(google_crc32c.value(text)), "token": uuid.uuid4().hex}
        path, ours = self._of(commit.number), sealed_text(record).encode()
        try:
            if create_object(path, ours):
                return
        except DklError:
            # The put may have been heard all the same, and its answer lost.
            if not path.exists():
                raise
        if path.read() != ours:
            raise InputError(
                "another process works on this run",
                where=str(self.root),
                got=f"commit {commit.number} by {self._record(commit.number).get('holder')}",
                remedy="let it go on, or `dkl resume` the run; what this process did since its last commit is not kept",
            )

    def _of(self, number: int) -> ObjectPath:
        return self.root / "commits" / f"{number:08d}.json"

    def _record(self, number: int) -> Json:
        return parsed_json(self._of(number).read(), self.root, sealed=True)


def require_conditional_puts(probe: ObjectPath, place: ObjectPath) -> None:
    """Raise InputError, which names `place`, for a store that creates an object where there is one; errors for one without access.

    probe: an object that is made and removed to try it.
    """
    try:
        # Some stores take the header and ignore it, so only a second put that is refused shows that it counts.
        created = [create_object(probe, b"one"), create_object(probe, b"two")]
    # Also where the user interrupts: no later process removes it.
    except BaseException:
        with suppress(DklError):  # the first error is the one to report
            _remove(probe)
        raise
    _remove(probe)
    if created != [True, False]:
        raise InputError(
            "its store cannot commit safely: it creates an object where there is one",
            where=str(place),
            wanted="conditional puts (If-None-Match: *)",
            remedy="write to a disk and copy that",
        )


def _remove(path: ObjectPath) -> None:
    with path.telling():
        path.files.rm([path.key])


def create_object(path: ObjectPath, content: bytes | Path) -> bool:
    """Create an object of bytes or of a file; return False if there is one already.

    A file is sent in pieces, and becomes an object when all are there. ResourceError if the store cannot be reached.
    """
    for _ in range(CONFLICTS):
        with path.telling(), _IN_MEMORY if path.is_of_this_process else nullcontext():
            try:
                if isinstance(content, bytes):
                    path.files.pipe_file(path.key, content, mode="create")
                elif path.files.exists(path.key):  # not every store looks once more when a file in pieces is whole
                    return False
                else:
                    path.files.put_file(str(content), path.key, mode="create", **IN_PIECES.get(path.scheme, {}))
                return True
            except Exception as error:
                status = status_of(error)
                if isinstance(error, FileExistsError) or status == EXISTS:
                    return False
                # The other put may fail yet, and then there is no object: only what is there after it says who was first.
                if status != CONFLICT:
                    raise
            if path.files.exists(path.key):
                return False
        time.sleep(CONFLICT_SECONDS)
    raise ResourceError(
        "its store refuses to create an object that is not there",
        where=str(path),
        got=f"status {CONFLICT}, {CONFLICTS} times",
        remedy="try again once no other process writes there",
    )


def _is_inside(name: str) -> bool:
    """Return whether `name` is that of a file below a run's folder, other than its lock."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and str(path) == name and name not in (".", "LOCK")

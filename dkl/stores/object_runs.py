"""A run in an object store: commits of its working folder, each whole or not at all.

    s3://bucket/run/commits/00000007.json, files/00000007-3f2a9c1b.json         see stores/object_commits.py
                    files/00000007-3f2a9c1b/factor/c/0/0, ...   files that are new since the commit before, by their names

A store of objects has neither rename nor lock nor append, so a run is worked on in a folder of this machine, as any other,
its scratch too. A commit writes the files that are new to objects of their own, then its manifest, then its number. A
reader takes the highest number. A writer that is killed before that leaves the commit before unchanged. A process that
resumes a run commits at once: a writer before it that still lives fails at its next commit. Objects are never written
twice; those that neither the newest commit nor the one before it names are removed by the process that committed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import google_crc32c

from dkl.errors import DiskError, DklError, InputError, StoreError
from dkl.io.paths import ObjectPath
from dkl.resources import format_bytes
from dkl.stores.folders import disk_errors
from dkl.stores.object_commits import IN_PIECES, PLACE, PROBE, SENT_TOGETHER, Commit, Entry, RunCommits

PIECE = 1 << 22
TRIES = 5
"""Number of attempts to read a run while it is committed to, or to send a file that changes meanwhile."""
FETCHED_AT_ONCE = 8
"""Number of files fetched at a time."""

AWAY = "store.json"
"""File of a folder that is kept because its store could not be reached: the address, and the attempts that committed there."""

Wanted = Callable[[str, Commit], bool]


class ObjectRun:
    """A run in an object store, as one process reads it and adds to it."""

    def __init__(self, root: ObjectPath) -> None:
        self.root, self.commits = root, RunCommits(root)
        self.last: Commit | None = None
        self._before: Commit | None = None
        self._stamps: dict[str, tuple[int, ...]] = {}
        self._in_doubt = False

    def __str__(self) -> str:
        return str(self.root)

    def require_new(self) -> None:
        """Raise InputError if anything exists, except what a run killed before its first commit leaves."""
        if not self._is_unbegun():
            remedy = "choose another path, or `dkl resume` it if it is a run"
            raise InputError("exists already and is never overwritten", where=str(self), remedy=remedy)

    def _is_unbegun(self) -> bool:
        names, places = self.root.names(), (self.root / "files").names()
        mine = all(name == "files" or name.startswith(PROBE) for name in names) and all(map(PLACE.match, places))
        return mine and not self.root.is_file()

    # -- reading ------------------------------------------------------------------------------------------------------

    def fetch(self, folder: Path, wanted: Wanted = lambda name, commit: True) -> None:
        """Copy the files of the newest commit that are `wanted` into a new folder, and compare them with it.

        InputError where there is no run; StoreError for what is damaged; DiskError where there is no space for them.
        """
        for left in reversed(range(TRIES)):
            if not (number := self.commits.newest_number()):
                raise InputError("no such run", where=str(self), wanted="one made by `dkl fit`")
            try:
                commit = self.commits.read(number)
                self._fetch(folder, {name: entry for name, entry in commit.files.items() if wanted(name, commit)})
            except (InputError, StoreError) as error:
                shutil.rmtree(folder, ignore_errors=True)
                # Commits that came meanwhile may have removed what this one named.
                if left and self.commits.newest_number() > number:
                    continue
                if error.what != "no such object":
                    raise
                raise StoreError("an object of this run is gone", where=error.where, got=error.got) from error
            # Only of a whole copy: what is not changed here is not sent again, by these stamps.
            self.last = commit
            self._stamps = {name: _stamp(folder / name) for name in commit.files}
            return

    def _fetch(self, folder: Path, files: dict[str, Entry]) -> None:
        needed, free = sum(entry.size for entry in files.values()), shutil.disk_usage(folder.parent).free
        # Before the first byte: a fetch that fills the disk fails the other programs of this machine too.
        if needed > free:
            remedy = "free space there, or set TMPDIR to a folder of a larger disk"
            got, wanted = f"{format_bytes(free)} free", format_bytes(needed)
            raise DiskError("no space for a copy of the run", where=str(folder), got=got, wanted=wanted, remedy=remedy)
        folder.mkdir(mode=0o700)
        for name in files:
            (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sources = [self.root / "files" / entry.place / name for name, entry in files.items()]
        with self.root.telling():
            targets = [str(folder / name) for name in files]
            # Batch by batch: of a longer list fsspec leaves coroutines that are never awaited if the store goes away.
            for at in range(0, len(sources), FETCHED_AT_ONCE):
                batch = slice(at, at + FETCHED_AT_ONCE)
                self.root.files.get(
                    [source.key for source in sources[batch]], targets[batch], batch_size=FETCHED_AT_ONCE
                )
        for (name, entry), source in zip(files.items(), sources, strict=True):
            path = folder / name
            if not path.is_file():
                raise InputError("no such object", where=str(source))
            # As files of a run that is made here: fsspec creates them by the umask.
            path.chmod(0o600)
            if (path.stat().st_size, _sum_of(path)) != (entry.size, entry.checksum):
                raise StoreError("not the file that was committed", where=str(source))

    # -- writing ------------------------------------------------------------------------------------------------------

    def publish(self, folder: Path, attempt: str, *, always: bool = False) -> None:
        """Commit the folder's files if they differ from what was committed last (or `always`).

        InputError where somebody else has committed since; ResourceError where the store cannot be reached.
        """
        self._resolve_doubt(attempt)
        known = {} if self.last is None else self.last.files
        # Before the files are read: what is written meanwhile has another stamp at the next commit, and is sent then.
        stamps = {name: _stamp(folder / name) for name in _files_of(folder)}
        kept = {name: known[name] for name in stamps if name in known and stamps[name] == self._stamps.get(name)}
        if not always and kept.keys() == stamps.keys() == known.keys():
            return
        commit = Commit(1 if self.last is None else self.last.number + 1, attempt, kept)
        # From the first object on: an error may leave them, or even the number, there.
        self._in_doubt = True
        commit.files.update(self._send(folder, commit.place, [name for name in stamps if name not in kept]))
        self.commits.create(commit)
        self._in_doubt = False
        # The commit before the last is kept: a reader who has just read its number still fetches its files.
        if self.last is not None and self._before is not None:
            self._remove(self._before.objects() - self.last.objects() - commit.objects())
        self.last, self._before, self._stamps = commit, self.last, stamps

    def _resolve_doubt(self, attempt: str) -> None:
        """Find out, after a commit that ended in an error, whether it was made after all.

        Its objects are then not to be written again.
        """
        if self._in_doubt and (number := self.commits.newest_number()):
            there = self.commits.read(number)
            if there.attempt == attempt and (self.last is None or number > self.last.number):
                # Which versions of the files it took is not known any more, so all are sent with the next one.
                self.last, self._before, self._stamps = there, self.last, {}
        self._in_doubt = False

    def _send(self, folder: Path, place: str, names: list[str]) -> dict[str, Entry]:
        """Write files of the folder to objects; skip any that is gone by now, as not the run's."""
        found: dict[str, Entry] = {}
        small: dict[str, bytes] = {}
        for name in names:
            target = self.root / "files" / place / name
            with suppress(FileNotFoundError):
                # Half: one file more, added to less than a half, is still within the bytes that may be under way.
                if (folder / name).stat().st_size > SENT_TOGETHER // 2:
                    found[name] = self._send_large(folder / name, target, place)
                    continue
                content = (folder / name).read_bytes()
                found[name] = Entry(place, len(content), int(google_crc32c.value(content)))
                small[target.key] = content
            if sum(map(len, small.values())) > SENT_TOGETHER // 2:
                self._send_small(small)
                small = {}
        self._send_small(small)
        return found

    def _send_small(self, contents: dict[str, bytes]) -> None:
        with self.root.telling():
            if contents:
                self.root.files.pipe(contents)

    def _send_large(self, path: Path, target: ObjectPath, place: str) -> Entry:
        """Send a large file in pieces, again if a worker replaced it meanwhile (DiskError after TRIES times)."""
        for _ in range(TRIES):
            before = _stamp(path)
            # Read twice, for its sum and to send it, as it is too large to hold: the stamp says whether both read the same.
            entry = Entry(place, path.stat().st_size, _sum_of(path))
            with target.telling():
                target.files.put_file(str(path), target.key, **IN_PIECES.get(target.scheme, {}))
            if _stamp(path) == before:
                return entry
        raise DiskError("a file changes faster than it can be committed", where=str(path))

    # -- clearing up --------------------------------------------------------------------------------------------------

    def remove_leftovers(self) -> None:
        """Remove objects that dead attempts have sent and not committed, or committed and not removed.

        Places of higher numbers than that of the commit we know are left: they belong to a process that continues from
        it, which needs of the others no more than that commit names.
        """
        if self.last is None:
            return
        named = self.last.objects() if self._before is None else self.last.objects() | self._before.objects()
        there = [name for name in (self.root / "files").listed() if PLACE.match(name)]
        self._remove(name for name in there if name not in named and int(name[:8]) <= self.last.number)

    def remove(self) -> None:
        """Delete a run that was just created, unless another process has committed to it since."""
        if self.last is not None and self.commits.newest_number() == self.last.number:
            with self.root.telling():
                self.root.files.rm([(self.root / name).key for name in self.root.listed()])

    def _remove(self, names: Iterable[str]) -> None:
        """Remove objects below files/. Failing to is no failure of the commit: the next resume removes them."""
        keys = [(self.root / "files" / name).key for name in names]
        with suppress(DklError), self.root.telling():
            if keys:
                self.root.files.rm(keys)


def _files_of(folder: Path) -> list[str]:
    """Return names of the run's files: not its lock, scratch, or what is being written or removed."""
    found = []
    for root, folders, names in os.walk(folder):
        # In place, as os.walk descends into what is left; sorted, for commits of one order on all file systems.
        folders[:] = sorted(name for name in folders if not name.startswith(("tmp-", "del-", "scratch-")))
        place = Path(root).relative_to(folder)
        found += [
            (place / name).as_posix()
            for name in sorted(names)
            if name not in ("LOCK", AWAY) and not name.endswith(".partial")
        ]
    return found


def _stamp(path: Path) -> tuple[int, ...]:
    """Return a tuple that changes when the file is written to or replaced; () if it is gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _sum_of(path: Path) -> int:
    """Return the crc32c of a file. Raises DiskError."""
    checksum = 0
    # Unbuffered: pieces are larger than any buffer, which would only copy them once more.
    with disk_errors("could not be read", path), open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            checksum = google_crc32c.extend(checksum, piece)
    return int(checksum)

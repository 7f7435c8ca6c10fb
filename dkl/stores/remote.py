"""Name of a run, and publication of its commits if it is in an object store (stores/object_runs.py)."""

from __future__ import annotations

import shlex
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkl.errors import DiskError, DklError, InputError, ResourceError, StoreError
from dkl.io.paths import ObjectPath
from dkl.stores import folders
from dkl.stores.folders import disk_errors
from dkl.stores.object_runs import AWAY, ObjectRun
from dkl.stores.seals import KEY, identity_in, read_json, require_identity, write_json

STORE_SECONDS = 600.0
"""Time for which the end of a fit waits for a store that cannot be reached."""
RETRY_SECONDS = 5.0
"""Pause between two attempts."""
KEPT = "dkl-kept-"
"""Prefix of the name of a folder that is kept because its store could not be reached."""


def how_to(kept: Path) -> str:
    """Return what to do with a folder that is kept, as the remedy of an error."""
    return f"all is kept in {kept}: `dkl resume {shlex.quote(str(kept))}` commits it, and continues, once the store is back"


def kept_for(folder: Path) -> ObjectRun | None:
    """Return the run in a store whose commits a kept folder continues; None of any other folder.

    InputError if another process has committed since; StoreError for a damaged record; ResourceError while the store is away.
    """
    if not (folder / AWAY).is_file():
        return None
    record = read_json(folder / AWAY, sealed=True)
    require_identity(record, identity_in(folder), folder / AWAY)
    try:
        objects, attempts = ObjectRun(ObjectPath.of(str(record["run"]), str(folder))), list(record["attempts"])
    except (KeyError, TypeError, InputError) as error:
        raise StoreError("a damaged record of its store", where=str(folder / AWAY), got=error) from error
    number = objects.commits.newest_number()
    commit = objects.commits.read(number) if number else None
    # A commit of any other attempt is another process' work, which ours would undo.
    if commit is None or commit.attempt not in attempts:
        remedy = f"`dkl resume {objects}` continues from there; without {AWAY} {folder} is a run by itself"
        got = "no commit" if commit is None else f"commit {number} by {commit.holder}"
        raise InputError("another process has worked on this run since", where=str(objects), got=got, remedy=remedy)
    objects.last = commit
    return objects


class Published:
    """A folder that an attempt works in, and of a run in an object store the commits of it."""

    def __init__(self, path: Path, attempt: str, objects: ObjectRun | None) -> None:
        self.path, self.attempt, self.objects = path, attempt, objects
        self.is_behind = False
        """True if the folder has what the store may lack, and is removed at the end of this process."""
        self.is_kept = (path / AWAY).is_file()
        """True if the folder outlasts this process."""

    @property
    def name(self) -> str:
        """Return the run's name as the user knows it: its folder, or its address in an object store."""
        return str(self.path if self.objects is None else self.objects)

    @contextmanager
    def at_its_place(self) -> Iterator[None]:
        """Raise DiskError where work fails in a folder that was renamed or deleted meanwhile, whatever failed first."""
        try:
            yield
        except DklError:
            folders.require_place(self.path)
            raise

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Replace the run's folder by its address in errors, if it has an address in an object store."""
        try:
            yield
        except DklError as error:
            if self.objects is None:
                raise
            raise error.named(str(self.path), self.name).with_traceback(error.__traceback__) from error.__cause__

    def publish(self) -> None:
        """Commit what the folder holds to the object store that the run is in, if it is in one.

        While the store cannot be reached it is tried again for STORE_SECONDS, which is said; then the folder is kept.
        InputError where somebody else works on it too; ResourceError and KeyboardInterrupt name the folder that is kept.
        """
        if self.objects is None:
            return
        end, waits = time.monotonic() + STORE_SECONDS, False
        try:
            while True:
                try:
                    return self._publish(self.objects)
                except DiskError:
                    # This machine's disk is at fault then, not the store: waiting does not help.
                    raise
                except ResourceError as error:
                    if time.monotonic() >= end:
                        kept = self.keep()
                        raise ResourceError(
                            error.what, where=error.where, got=error.got, remedy=how_to(kept)
                        ) from error
                    if not waits:
                        warnings.warn(f"waiting for up to {STORE_SECONDS:g} s: {error}", RuntimeWarning, stacklevel=2)
                    waits = True
                time.sleep(RETRY_SECONDS)
        except KeyboardInterrupt as stopped:
            if not self.is_behind:
                raise
            said = f"interrupted while {self.name} could not be reached; {how_to(self.keep())}"
            raise KeyboardInterrupt(said) from stopped

    def _publish(self, objects: ObjectRun, *, always: bool = False) -> None:
        try:
            objects.publish(self.path, self.attempt, always=always)
        except (ResourceError, KeyboardInterrupt):
            self.is_behind = not always  # taking over: there is no new work yet
            raise
        self.is_behind = False
        if self.is_kept:
            (self.path / AWAY).unlink(missing_ok=True)

    def publish_if_reachable(self) -> None:
        """Commit in the midst of a fit: while the store cannot be reached a warning, and a later commit has it all."""
        if self.objects is None:
            return
        try:
            self._publish(self.objects)
        except DiskError:
            raise
        except ResourceError as error:
            warnings.warn(f"not committed yet, the fit continues: {error}", RuntimeWarning, stacklevel=2)

    def keep(self) -> Path:
        """Keep the folder of a run in a store beyond the end of this process, with what continuing it takes; its path."""
        assert self.objects is not None
        if not self.is_kept:
            # Out of the folder that is removed with this process, on the same disk; the lock follows.
            kept = self.path.parent.parent / f"{KEPT}{self.path.name}-{self.attempt}"
            with disk_errors("cannot be kept", self.path):
                self.path.rename(kept)
                folders.follow(self.path, kept)
            self.path, self.is_kept = kept, True
        last = self.objects.last
        # Both, as the commit that was under way may have reached the store or not.
        attempts = [self.attempt, *([last.attempt] if last else [])]
        record = {"run": str(self.objects), "attempts": attempts, KEY: identity_in(self.path)}
        write_json(self.path / AWAY, record)
        self.is_behind = False
        return self.path

    def take_over(self) -> None:
        """Commit at once to a run in an object store, so that an earlier writer fails at its next commit.

        Called under the lock. Objects that dead attempts left are removed.
        """
        if self.objects is not None:
            self._publish(self.objects, always=True)
            self.objects.remove_leftovers()

    def remove(self) -> None:
        """Delete a run that this process has just created.

        Raises DiskError where its folder is no longer at its path.
        """
        folders.require_place(self.path)
        shutil.rmtree(self.path)
        if self.objects is not None:
            self.objects.remove()

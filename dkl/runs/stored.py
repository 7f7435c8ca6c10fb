"""Locations of runs: a folder on a disk, or an address (s3://bucket/run) with a folder to work in; and what opens them.

The folder of a run in a store is one of the system's temporary folders (TMPDIR, which must be of a disk with space for the
run, and seen by the workers of a cluster): it has all that a run in a folder has, and goes when this process ends. What a
process that was killed has left there goes when another works on the same run.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import uuid
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError, StoreError
from dkl.estimators.base.settings import Settings, declared
from dkl.estimators.base.work_folder import locked_folder
from dkl.io.paths import ObjectPath, is_address
from dkl.runs import registry
from dkl.runs.inputs.files import check_new
from dkl.stores.object_commits import Commit
from dkl.stores.object_runs import ObjectRun
from dkl.stores.remote import kept_for
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json


_held = ExitStack()
_copies: dict[str, tuple[Path, ObjectRun]] = {}
"""Copies of runs that were read, by address; one serves until there is a newer commit."""


@atexit.register
def _let_go(owner: int = os.getpid()) -> None:
    """Delete temporary folders at the end of this process, not at that of one forked from it."""
    # A forked process inherits this function, and must not delete what its parent still uses.
    if os.getpid() == owner:
        _held.close()


@dataclass(frozen=True)
class NewRun:
    """Location of a new run. name: as the user typed it. parent: of its folder, for the disk's space."""

    name: str
    parent: Path
    path: Path | None
    objects: ObjectRun | None = None

    def create(self, config: Json) -> RunStore:
        """Create the run and lock it; errors as of `RunStore.create`."""
        return RunStore.create(self.path or _folder_of(str(self.objects)), config, self.objects)


def new_run(out: Any, *, writes: bool = True) -> NewRun:
    """Return a new location at which runs can be committed; errors name the obstacle.

    writes: whether the store may be asked by writing to it.
    """
    if not is_address(out):
        path = check_new(out, may_be_empty_folder=True)
        return NewRun(str(path), path.parent, path)
    objects = ObjectRun(ObjectPath.of(out, "--out"))
    objects.require_new()
    if writes:
        objects.commits.require_conditional_puts()
    return NewRun(str(objects), Path(tempfile.gettempdir()), None, objects)


def found_run(path: str | os.PathLike[str], *, to_work: bool = False) -> RunStore:
    """Open an existing run; of one in a store a copy, the caller's alone if it is `to_work` on it.

    Errors as of `RunStore.open`; StoreError for objects that are damaged.
    """
    if not is_address(path):
        run = RunStore.open(path)
        run.objects = kept_for(run.path) if to_work else None
        return run
    objects = ObjectRun(ObjectPath.of(path, "run"))
    name = str(objects)
    if to_work:
        folder = _folder_of(name)
        objects.fetch(folder)
        # Without them two processes could commit to one run unseen.
        objects.commits.require_conditional_puts()
        objects.remove_leftovers()
    else:
        folder, objects = _copy_of(name, objects)
    with RunStore(folder, {}, objects).telling():
        return RunStore.open(folder, objects)


def _copy_of(name: str, objects: ObjectRun) -> tuple[Path, ObjectRun]:
    """Return a folder with what reading the run's newest commit needs, and its objects."""
    if name in _copies:
        folder, before = _copies[name]
        # Commits are numbered, so a copy is right until there is a higher number.
        if before.last is not None and objects.commits.newest_number() == before.last.number:
            return folder, before
    folder = _folder_of(name)
    objects.fetch(folder, _is_read)
    _copies[name] = folder, objects
    return folder, objects


def _is_read(name: str, commit: Commit) -> bool:
    """Return whether reading the run needs a file: of a complete run not the checkpoints."""
    return "report.json" not in commit.files or not name.startswith("generations/")


def _folder_of(name: str) -> Path:
    """Return a path in a new folder that is this process' alone."""
    kind = f"dkl-run-{zlib.crc32(name.encode()):08x}"
    return _held.enter_context(locked_folder(tempfile.gettempdir(), kind, uuid.uuid4().hex[:8])) / Path(name).name


def open_run(path: str | os.PathLike[str], *, to_work: bool = False) -> RunStore:
    """Open the run at `path`, of a known learner with valid settings; to_work: not for reading alone."""
    run = found_run(path, to_work=to_work)
    with run.telling():
        settings_of(run, {})
    return run


def settings_of(run: RunStore, changes: Mapping[str, object]) -> Any:
    """Return the settings that a run was started with, with `changes`; InputError for one not allowed."""
    declaration = registry.declaration(registry.task_of(run))
    allowed = [setting for setting in declared(declaration.settings).values() if setting.resumable]
    for name in changes:
        if name not in [setting.name for setting in allowed]:
            raise InputError(
                f"not for a run of `dkl fit {declaration.task}`",
                where=f"--{name.replace('_', '-')}",
                wanted=", ".join(setting.flag for setting in allowed),
            )
    return replace(_stored(run, declaration.settings), **changes)


def _stored(run: RunStore, kind: type[Settings]) -> Settings:
    """Return the settings in a run's configuration; StoreError for any that break their rule."""
    stored, where = run.config.get("settings"), f"{run.path}/config.json"
    if not isinstance(stored, dict) or not stored.keys() <= {field.name for field in fields(kind)}:
        raise StoreError("no settings that are understood", where=where)
    settings = kind(**{**kind.absent, **stored})
    for name, setting in declared(kind).items():
        value = getattr(settings, name)
        if not setting.rule.accepts(value) and value not in setting.recorded:
            raise StoreError(f"a damaged setting {name}", where=where, got=repr(value), wanted=setting.rule.wanted)
    return settings


def events_of(run: RunStore, event: str) -> list[Json]:
    """Return the logged events of a name, in order."""
    return [found for found in run.events() if isinstance(found, dict) and found.get("event") == event]

"""Opening of existing runs: every defect is a StoreError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError, StoreError
from dkl.estimators.base.settings import Settings, declared
from dkl.runs import registry
from dkl.runs.places import found_run
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    import os

    from dkl.stores.sealed_json import Json


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

"""A run's folder as it is found: whatever is wrong with it is a StoreError, never a surprise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.common.parameters import PARAMETERS, Check
from dkl.estimators.pairwise.settings import Settings
from dkl.stores.generations import Generation, read_json
from dkl.stores.run import RunStore

S = TypeVar("S")

TASKS = {"pairwise": "dkl transform", "regression": "dkl predict", "svc": "dkl predict"}
"""The kinds of runs, and the commands that use what they came to."""


def task_of(run: RunStore) -> str:
    """What the run learns; those of pairs do not say."""
    task = run.config.get("task", "pairwise")
    if not isinstance(task, str) or task not in TASKS:
        wanted = " or ".join(TASKS)
        raise StoreError("a run of a kind that is not understood", where=str(run.path), got=task, wanted=wanted)
    return task


def open_task(path: str, *tasks: str) -> RunStore:
    """The run at `path`, which must be one of `tasks`."""
    run = RunStore.open(path)
    found = task_of(run)
    if found not in tasks:
        wanted = " or ".join(f"`dkl fit {task}`" for task in tasks)
        raise InputError(f"not a run of {wanted}", where=str(run.path), got=found, mend=f"use `{TASKS[found]}` for it")
    return run


def open_run(path: str) -> RunStore:
    """The run of pairs at `path`, its settings checked."""
    run = open_task(path, "pairwise")
    settings_of(run, {})
    return run


def settings_of(run: RunStore, changes: dict[str, Any]) -> Settings:
    """The settings that a run was begun with, with some changed."""
    return replace(stored_settings(run, Settings, PARAMETERS), **changes)


def stored_settings(run: RunStore, kind: type[S], rules: dict[str, Check], but: dict[str, Any] | None = None) -> S:
    """The settings in a run's configuration; StoreError for any that break their rule, `but` for these values."""
    stored, where = run.config.get("settings"), f"{run.path}/config.json"
    if not isinstance(stored, dict) or not stored.keys() <= {field.name for field in fields(kind)}:  # type: ignore[arg-type]
        raise StoreError("no settings that are understood", where=where)
    settings = kind(**stored)
    for name, (check, wanted) in rules.items():
        value = getattr(settings, name, None)
        allowed = but is not None and name in but and value == but[name]
        if hasattr(settings, name) and not allowed and not check(value):
            raise StoreError(f"a damaged setting {name}", where=where, got=repr(value), wanted=wanted)
    return settings


def check_changes(changes: dict[str, Any], may_change: tuple[str, ...], what: str) -> None:
    """InputError for an option of `dkl resume` that is not for this kind of run."""
    for name in changes:
        if name not in may_change:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in may_change)
            raise InputError(f"not for {what}", where=f"--{name.replace('_', '-')}", wanted=flags)


def has_problem(run: RunStore) -> bool:
    """Whether graph and pairs are stored; the graph comes last, and its attributes last in it."""
    root = run.path / "graph" / "zarr.json"
    return root.is_file() and "kind" in read_json(root).get("attributes", {})


def graph_notes(run: RunStore) -> dict[str, Any]:
    """sigma, n_neighbors and the like."""
    notes = run.config.get("graph", {})
    return notes if isinstance(notes, dict) else {}


def newest(run: RunStore) -> Generation | None:
    """The last commit that is whole."""
    if not (run.path / "generations").is_dir():
        return None
    return next(run.generations().newest_first(), None)


def rows_of(run: RunStore) -> list[dict[str, Any]]:
    """The history, an entry an iteration in order."""
    rows = {}
    for event in run.events():
        if isinstance(event, dict) and event.get("event") == "iteration" and isinstance(event.get("iteration"), int):
            rows[event["iteration"]] = {key: event[key] for key in event.keys() - {"event", "at", "attempt"}}
    return [rows[iteration] for iteration in sorted(rows)]


def open_factor(run: RunStore) -> Any:
    """The result, (n, rank) in chunks of rows, not read yet; StoreError where it cannot be."""
    where = f"{run.path}/factor"
    try:
        array: Any = run.factor()
        shape, chunks = tuple(array.shape), tuple(array.chunks)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise StoreError("the result cannot be opened", where=where, got=f"{type(error).__name__}: {error}") from error
    if len(shape) != 2 or min(shape) < 1 or chunks[1] != shape[1] or array.dtype not in (np.float64, np.float32):
        raise StoreError("not a factor", where=where, got=f"{array.dtype} {shape} in chunks {chunks}")
    return array


def factor_blocks(run: RunStore) -> Iterator[tuple[int, NDArray]]:
    """(first row, rows) of the result, chunk by chunk; StoreError for one that is missing or damaged."""
    array = open_factor(run)
    for lo in range(0, array.shape[0], array.chunks[0]):
        where = f"{run.path}/factor, rows from {lo}"
        try:
            rows = np.asarray(array[lo : lo + array.chunks[0]])
        except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
            raise StoreError("a chunk of the result is damaged", where=where, got=error) from error
        # A missing chunk reads as NaN.
        if not np.isfinite(rows).all():
            raise StoreError("a chunk of the result is missing, or holds NaN", where=where)
        yield lo, rows

"""The learners that have runs, a line each. Nothing of a learner is imported before its name is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dkl.errors import InputError, StoreError
from dkl.runs.kind import Declaration, RunKind
from dkl.stores.registry import OLDEST_TASK

if TYPE_CHECKING:
    from dkl.stores.run import RunStore

TASKS = {
    "pairwise": "dkl.runs.pairwise",
    "regression": "dkl.runs.regression",
    "svc": "dkl.runs.svm",
    "logdet": "dkl.runs.logdet",
    "metric": "dkl.runs.logdet.metric",
    "laplacian": "dkl.runs.qsdp.laplacian",
    "mvu": "dkl.runs.qsdp.mvu",
}
"""The module of each task's `DECLARATION`."""


def declaration(task: str) -> Declaration:
    """Return the declaration of a task; KeyError for one that is not registered."""
    found: Declaration = importlib.import_module(TASKS[task]).DECLARATION
    return found


def kind(task: str) -> RunKind:
    """Return the `RunKind` that plans and does a task's work."""
    return declaration(task).runs()


def task_of(run: RunStore) -> str:
    """Return the task of a run; StoreError if unknown. The oldest runs, all of pairs, do not store it."""
    task = run.config.get("task", OLDEST_TASK)
    if not isinstance(task, str) or task not in TASKS:
        wanted = " or ".join(TASKS)
        raise StoreError("a run of a kind that is not understood", where=run.name, got=task, wanted=wanted)
    return task


def require_verb(run: RunStore, verb: str) -> str:
    """Return the run's task if `dkl <verb>` is for it; else raise InputError with the verb that is."""
    task = task_of(run)
    if declaration(task).verb != verb:
        wanted = " or ".join(f"`dkl fit {name}`" for name in TASKS if declaration(name).verb == verb)
        remedy = f"use `dkl {declaration(task).verb}` for it"
        raise InputError(f"not a run of {wanted}", where=run.name, got=task, remedy=remedy)
    return task


@contextmanager
def registered(task: str, module: str) -> Iterator[None]:
    """Register a learner of another package while the context is entered."""
    TASKS[task] = module
    try:
        yield
    finally:
        del TASKS[task]

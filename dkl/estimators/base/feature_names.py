"""Names of the learned columns, in a run's folder, with which columns of other rows are matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import InputError, StoreError
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

NAMES = "feature_names"
"""Key of the names in a run's configuration; runs of rows without names have none."""
MOST_NAMED, MOST_CHARACTERS = 5, 200
"""Maximum numbers of names that an error lists, and of characters of those that it wants."""


def describe_names(names: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the names of columns as a run's configuration keeps them; {} without names."""
    return {} if names is None else {NAMES: [str(name) for name in names]}


def stored_names(run: RunStore) -> tuple[str, ...] | None:
    """Return the names of the columns that a run learned from, if any; StoreError for damaged ones."""
    found = run.config.get(NAMES)
    if found is None:
        return None
    inputs = run.config.get("inputs")
    shape = inputs.get("data", {}).get("shape") if isinstance(inputs, dict) else None
    is_list = isinstance(found, list) and bool(found) and all(isinstance(name, str) for name in found)
    if not is_list or (isinstance(shape, list) and len(shape) == 2 and shape[1] != len(found)):
        where, got = f"{run.path}/config.json", str(found)[:MOST_CHARACTERS]
        raise StoreError("damaged names of the columns", where=where, got=got)
    return tuple(found)


def adopt_names(estimator: BaseEstimator, run: RunStore) -> Any:
    """Set `feature_names_in_` of a loaded estimator to its run's column names, if any, and return it."""
    names = stored_names(run)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def order_of(names: Sequence[str], known: Sequence[str], where: str) -> list[int]:
    """Return the places among `names` of the learned columns `known`; InputError if names differ."""
    missing, extra = [n for n in known if n not in names], [n for n in names if n not in known]
    if missing or extra or len(names) != len(known):
        parts = (f"missing {_listed(missing)}" if missing else "", f"extra {_listed(extra)}" if extra else "")
        got = ", ".join(filter(None, parts)) or f"{len(names)} columns"
        remedy = "rename the columns" if missing else f"leave the others out: --drop {extra[0] if extra else 1}"
        wanted = ", ".join(known)[:MOST_CHARACTERS]
        raise InputError("other columns than were learned from", where=where, got=got, wanted=wanted, remedy=remedy)
    return [names.index(name) for name in known]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more

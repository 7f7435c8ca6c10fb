"""Whose a state is: a checksum of what its run learns from and by, which goes with every state that is kept.

A checkpoint that is whole may be another run's, of the same shape: copied into the wrong folder, or left there. Nothing but this
tells that its numbers belong to other data, another kernel or another seed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import google_crc32c

from dkl.errors import StoreError
from dkl.stores.sealed_json import read_json

KEY = "origin"
"""Of a state's manifest."""
MADE_FROM = ("task", "inputs", "settings")
"""Parts of a run's configuration that are written once."""


def origin_of(run: Path) -> int | None:
    """crc32c of what the run in this folder is made from; None where no run is."""
    try:
        config = read_json(run / "config.json", sealed=True)
    except StoreError:
        return None
    made_from = {name: config.get(name) for name in MADE_FROM}
    return int(google_crc32c.value(json.dumps(made_from, sort_keys=True).encode()))


def require_origin(notes: dict[str, Any], origin: int | None, state: Path) -> None:
    """StoreError for the state of another run; those of earlier versions do not tell."""
    if notes.get(KEY, origin) != origin:
        raise StoreError("a state of another run", where=str(state), got=notes[KEY], wanted=origin)

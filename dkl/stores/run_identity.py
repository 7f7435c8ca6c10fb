"""Identity of a run: a digest of all that it learns from and by, which every part of it bears.

    zarr.json           the group's attribute `identity`, of the configuration as the run was created
    */MANIFEST.json     of each part and each state, with the bytes and checksums of its files
    events.jsonl        of each line
    report.json

A part that is whole may be another run's, of the same shape: copied into the wrong folder, or left there. Nothing else shows
that its numbers belong to other data, another kernel or another seed. Two runs of one configuration on the same content are
interchangeable, and have the same identity wherever they and their inputs are.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dkl.errors import StoreError
from dkl.stores.sealed_json import canonical, read_json

KEY = "identity"
"""Key of the identity in a root, a manifest, a report and a line of a log."""
DRAWN = "drawn"
"""Key of the configuration of a run whose data is in memory alone: a random name in place of the checksums of files."""


def drawn() -> dict[str, str]:
    """Return a configuration's entry for data in no file: unique, so that two such runs always differ."""
    return {DRAWN: uuid.uuid4().hex}


def identity_of(config: Mapping[str, object]) -> str:
    """Return the identity of a run with this configuration: a digest of all of it but the paths of its inputs."""
    inputs = config.get("inputs")
    if isinstance(inputs, dict):
        inputs = {name: _without_path(entry) for name, entry in inputs.items()}
    return hashlib.blake2b(canonical({**config, "inputs": inputs}), digest_size=8).hexdigest()


def _without_path(entry: object) -> Any:
    return {key: value for key, value in entry.items() if key != "path"} if isinstance(entry, dict) else entry


def identity_in(run: Path) -> Any:
    """Return the identity in the root attributes of the run in a folder; None if it has no identity."""
    try:
        attributes = read_json(run / "zarr.json").get("attributes")
    except StoreError:
        return None
    return attributes.get(KEY) if isinstance(attributes, dict) else None


def require_identity(content: Mapping[str, object], identity: object, where: Path) -> None:
    """Raise StoreError unless a manifest, state, report or record bears the identity of its run."""
    if content.get(KEY) != identity:
        raise StoreError(
            "part of another run",
            where=str(where),
            got=f"{KEY} {content.get(KEY)}"[:60],
            wanted=f"{KEY} {identity}"[:60],
            remedy="put back the run's own from a copy, or begin a new run",
        )

"""Whether the arrays of a run that has no seals are there: runs of versions before stores/seals.py.

What every run of the learner has is declared; a chunk's length follows from its array, and its crc32c is in its last four
bytes. Where a chunk belongs is not known of these runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dkl.errors import StoreError
from dkl.stores import seals
from dkl.stores.arrays import open_array
from dkl.stores.registry import CHECKED, Arrays, StoredArray


def unsealed_damages(root: Path, arrays: Arrays | None, *, whole: bool) -> dict[str, StoreError]:
    """What is wrong with the arrays that every run has, by the part of the run that they stand in. whole: bytes are read."""
    found: dict[str, StoreError] = {}
    for declared in arrays or ():
        part = declared.path.partition("/")[0]
        if declared.optional or part in found or "*" in declared.path or part == "generations":
            continue
        try:
            _require(root / declared.path, declared, whole)
        except StoreError as damage:
            found[part] = damage
    return found


def _require(path: Path, declared: StoredArray, whole: bool) -> None:
    array = open_array(path, declared)
    counts = [-(-length // chunk) for length, chunk in zip(array.shape, array.chunks, strict=True)]
    size = int(np.prod(array.chunks)) * array.dtype.itemsize + seals.TAIL
    # A small array of fill values alone has no chunk; one of no rows is stored as a row of nothing.
    must = int(array.attrs.get("rows", 1)) > 0 and declared.fill is None and array.dtype.kind == "f"
    for index in np.ndindex(*counts):
        chunk = path / "/".join(["c", *map(str, index)])
        if not chunk.is_file():
            if must:
                raise StoreError("a chunk is missing", where=str(chunk), remedy=seals.REMEDY)
            continue
        if declared.codecs == CHECKED and chunk.stat().st_size != size:
            raise StoreError("a chunk is cut short", where=str(chunk), wanted=f"{size} bytes", remedy=seals.REMEDY)
        seals.check_files(chunk.parent, {chunk.name: seals.file_sum(chunk)}, whole=whole)

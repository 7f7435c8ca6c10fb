"""JSON files with a checksum of their content: what is cut short, edited or of another file is a StoreError."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c

from dkl.errors import StoreError
from dkl.io.paths import ObjectPath
from dkl.io.reading import require_room
from dkl.resources import format_bytes
from dkl.stores.folders import disk_errors, fsync, write_all

if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]
    """Object of JSON, as `json` reads it: values are null, booleans, numbers, texts, lists and objects."""

SEAL = "crc32c"
"""Key of the checksum among the content's keys. crc32c, as in zarr's codec: the processor computes it."""

LARGEST = 32_000_000
"""Bytes of a file of JSON at most: of a hundred thousand machines, or names of columns, it has a third of them."""
MEMORY = 10
"""Bytes that a byte of our JSON takes once it is read, and compared with its checksum; of the emptiest lists it is 30."""


def write_json(path: Path, content: Json) -> None:
    """Write JSON with a checksum, by a temporary file, fsync and rename: readers see the old file or the new one.

    Raises DiskError.
    """
    with disk_errors("could not be written", path, remedy="free space on that disk, then try again"):
        replace_json(path, content)


def replace_json(path: Path, content: Json) -> None:
    """Write as `write_json` does, but raise OSError, for a commit that has its own error message."""
    replace_text(path, sealed_text(content))


def replace_text(path: Path, text: str) -> None:
    """Write a text by a temporary file, fsync and rename. Raises OSError."""
    temporary = path.with_name(path.name + ".partial")
    # For the owner alone: settings and paths of the data are in it.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, memoryview(text.encode()), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    # The folder too: a rename is on disk only once its folder is.
    fsync(path.parent)


def read_json(path: Path, *, sealed: bool = False) -> Json:
    """Read a JSON object from a file; raise a StoreError that says what is wrong with it.

    sealed: it was written by `write_json`, so its checksum must be there and right.
    """
    try:
        require_small(path, os.stat(path).st_size)
        with open(path, "rb") as file:
            text = file.read()
    except OSError as error:
        raise _unreadable(path, error) from error
    return parsed_json(text, path, sealed=sealed)


def require_small(path: Path | ObjectPath, size: int) -> None:
    """Raise StoreError for a file of JSON that is larger than any of ours, MemoryBudgetError for one beyond the room for files."""
    if size > LARGEST:
        got, wanted = format_bytes(size), f"at most {format_bytes(LARGEST)}"
        raise StoreError("larger than a file of JSON is", where=str(path), got=got, wanted=wanted)
    require_room(MEMORY * size, path)


def sealed_text(content: Json) -> str:
    """Return the JSON text that `write_json` writes: the content and its checksum."""
    # NaN and Infinity are no JSON, but what Python writes and reads: gaps that are not proven are infinite.
    return json.dumps({**content, SEAL: _seal(content)}, indent=1, allow_nan=True)


def parsed_json(text: bytes, path: Path | ObjectPath, *, sealed: bool = False) -> Json:
    """Parse the text of a JSON object as `read_json` does; `path` is for errors."""
    try:
        content = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise StoreError("not a JSON object", where=str(path), got=type(content).__name__)
    seal = content.pop(SEAL, None)
    if sealed and seal != _sum(content):  # it was parsed, so needs no round trip as `canonical` makes it
        raise StoreError("not what was written: its checksum does not match", where=str(path))
    return content


def _unreadable(path: Path | ObjectPath, error: Exception) -> StoreError:
    return StoreError("not readable as JSON", where=str(path), got=f"{type(error).__name__}: {error}")


def canonical(content: Json) -> bytes:
    """Return what JSON keeps of `content` in one form, however it was laid out."""
    # Through JSON and back: tuples become lists and keys texts, as they are when the file is read.
    return _sorted(json.loads(json.dumps(content, allow_nan=True)))


def _sorted(kept: Json) -> bytes:
    return json.dumps(kept, sort_keys=True, allow_nan=True).encode()


def _seal(content: Json) -> int:
    """Return the crc32c of what JSON keeps of `content`, however it is laid out."""
    return int(google_crc32c.value(canonical(content)))


def _sum(kept: Json) -> int:
    return int(google_crc32c.value(_sorted(kept)))

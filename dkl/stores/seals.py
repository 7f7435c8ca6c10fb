"""Sealed files: JSON with a checksum of its content, and seals, the size and checksum of every file of a folder.

    zarr.json           the group's attribute `identity`, of the configuration as the run was created
    */MANIFEST.json     of each part and each state, with the bytes and checksums of its files
    events.jsonl        of each line
    report.json

JSON that is cut short, edited or of another file is a StoreError. A seal names its folder and the identity of its run, as a part
that is whole may be another run's, of the same shape: copied into the wrong folder, or left there. Nothing else shows that its
numbers belong to other data, another kernel or another seed. Two runs of one configuration on the same content are
interchangeable, and have the same identity wherever they and their inputs are.

    part/MANIFEST.json      {"of": "factor", "identity": of the run, "files": {"c/0/0": [bytes, crc32c], "zarr.json": [...]}};
                            its own crc32c

A chunk's crc32c says that its bytes are whole, not that they belong there: two chunks that were swapped both pass. The
codec stores that checksum in the chunk's last four bytes, so a seal is made, and compared, at four bytes a chunk; the
chunk itself is compared with them when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c

from dkl.errors import StoreError
from dkl.io.paths import ObjectPath
from dkl.io.reading import require_room
from dkl.resources import format_bytes
from dkl.stores.folders import disk_errors, fsync, write_all

if TYPE_CHECKING:
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
        # A run that is moved together with its data stays the same run.
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


MANIFEST = "MANIFEST.json"
TAIL = 4
"""Bytes at the end of a chunk: the crc32c of all before them."""
PIECE = 1 << 22
REMEDY = "put the folder back from a copy, or begin a new run"

Files = dict[str, tuple[int, int]]
"""(bytes, crc32c) by the file's name in its folder."""


def file_sum(path: Path) -> tuple[int, int]:
    """Return (bytes, crc32c) that a seal keeps of a file: a chunk's from its tail, else of its content.

    Raises OSError.
    """
    # Metadata is small, and has no checksum at its end.
    if path.suffix == ".json":
        content = path.read_bytes()
        return len(content), int(google_crc32c.value(content))
    # A chunk ends with its checksum, so gigabytes are sealed without being read.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        return size, int.from_bytes(os.pread(descriptor, TAIL, max(0, size - TAIL)), "little")
    finally:
        os.close(descriptor)


def files_in(folder: Path) -> Files:
    """Return a seal's entries for all files below a folder but its manifest. Raises OSError."""
    return {str(path.relative_to(folder)): file_sum(path) for path in _listed(folder)}


def _listed(folder: Path) -> list[Path]:
    """Return the files below a folder that a seal lists: all but its manifest and those that were not written whole."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST)
    # What a killed write left was never part of the folder.
    return [path for path in files if path.suffix != ".partial"]


def seal_folder(folder: Path, of: str, files: Files | None = None) -> None:
    """Write the manifest of a folder whose files are written. Raises DiskError.

    of: its name in a run, which the manifest holds with the run's identity. files: its entries, if they are known already.
    """
    with disk_errors("could not be sealed", folder):
        found = files_in(folder) if files is None else files
    write_json(folder / MANIFEST, {"of": of, KEY: identity_in(folder.parent), "files": dict(sorted(found.items()))})


def is_sealed(folder: Path) -> bool:
    """Return whether a folder has a manifest."""
    return (folder / MANIFEST).is_file()


def read_seal(folder: Path, of: str | None = None) -> tuple[Files, int]:
    """Return (files, checksum of the manifest) of a sealed folder.

    Raises StoreError where it is not sealed, is another run's, or is under another's name (`of`).
    """
    content = read_json(folder / MANIFEST, sealed=True)
    require_identity(content, identity_in(folder.parent), folder)
    if of is not None and content.get("of") != of:
        raise StoreError("a folder under another's name", where=str(folder), got=content.get("of"), wanted=of)
    return files_of(content, folder), content_sum(content)


def content_sum(content: Json) -> int:
    """Return the checksum of a manifest's content by which a report identifies it."""
    # Sorted, as the order of keys in the file says nothing.
    listed = [[name, *numbers] for name, numbers in sorted(content["files"].items())]
    return int(google_crc32c.value(repr((content.get("of"), listed)).encode()))


def files_of(content: Json, where: Path) -> Files:
    """Return the files of a manifest that was read; StoreError if it names none that are understood."""
    try:
        return {str(name): (int(size), int(checksum)) for name, (size, checksum) in content["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError("a manifest that is not understood", where=str(where), got=type(error).__name__) from error


def check_files(folder: Path, files: Files, *, whole: bool = False, only: Iterable[str] | None = None) -> None:
    """Compare a folder with the files that its seal lists, or `only` some of them. whole: read all bytes.

    Raises StoreError for the first file that is missing, not listed, or not as written.
    """
    if only is None:
        for path in _listed(folder):
            if str(path.relative_to(folder)) not in files:
                raise StoreError("a file that was not sealed", where=str(path), remedy=REMEDY)
    for name in files if only is None else only:
        path = folder / name
        if name not in files:
            raise StoreError("a file that was not sealed", where=str(path), remedy=REMEDY)
        try:
            found = file_sum(path)
            body = _body_sum(path, found) if whole else found[1]
        except OSError as error:
            raise StoreError("a file is missing", where=str(path), got=error.strerror, remedy=REMEDY) from error
        # In this order, so that the error says the most: cut short, then another file, then damaged.
        if found[0] != files[name][0]:
            wanted = f"{files[name][0]} bytes"
            raise StoreError("a file is cut short", where=str(path), got=f"{found[0]}", wanted=wanted, remedy=REMEDY)
        if found[1] != files[name][1]:
            raise StoreError("not the file that was written here", where=str(path), remedy=REMEDY)
        if body != found[1]:
            raise StoreError("a file's checksum does not match its bytes", where=str(path), remedy=REMEDY)


def check_folder(folder: Path, of: str | None = None, *, whole: bool = False) -> None:
    """Compare a folder with its seal. Raises StoreError."""
    if not is_sealed(folder):
        raise StoreError("its seal is missing", where=str(folder / MANIFEST), remedy=REMEDY)
    check_files(folder, read_seal(folder, of)[0], whole=whole)


def _body_sum(path: Path, found: tuple[int, int]) -> int:
    """Return the crc32c of a chunk before its tail, by reading it; for metadata the known one."""
    if path.suffix == ".json":
        return found[1]
    checksum, left = 0, found[0] - TAIL
    # Unbuffered: pieces of megabytes need no second copy.
    with open(path, "rb", buffering=0) as file:
        while left > 0 and (piece := file.read(min(PIECE, left))):
            checksum, left = google_crc32c.extend(checksum, piece), left - len(piece)
    return int(checksum)

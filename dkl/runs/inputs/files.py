"""Input files of a run, their fingerprints, and inputs that are read when they are first asked for."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import google_crc32c
import numpy as np

from dkl.errors import DiskError, InputError, StoreError
from dkl.io.paths import AnyPath, ObjectPath, as_path, as_source, table_suffix, tag_of
from dkl.io.plain_arrays import METADATA
from dkl.io.reading import TableOptions
from dkl.runs.registry import InputFile
from dkl.stores.folders import is_unbegun
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json


T = TypeVar("T")


class Lazy(Generic[T]):
    """Value of `read`, read at the first call; after `release` it is read again when called."""

    def __init__(self, read: Callable[[], T], value: T | None = None) -> None:
        self._read, self._value = read, value

    def __call__(self) -> T:
        """Return the value, read if it is not held."""
        if self._value is None:
            self._value = self._read()
        return self._value

    def release(self) -> None:
        """Release the value, so that its memory is free."""
        self._value = None


TABLE = "table"
"""Key of the options of delimited text, next to the fingerprint of the data."""
HASHED_BYTES = 1 << 22
"""Bytes of a file that are read at a time for its checksum."""
PIECES, PIECE_BYTES = 64, 1 << 20
"""Number and size of the pieces of a file above 256 MB of which earlier runs store the checksum."""


@dataclass(frozen=True)
class Files:
    """Absolute paths, or addresses of objects, by the inputs' names.
    None for an input that is in the file of another, or is not given."""

    declared: tuple[InputFile, ...]
    paths: Mapping[str, AnyPath | None]
    table: TableOptions = TableOptions()
    """Options by which delimited text among them is read."""

    @classmethod
    def of(cls, declared: tuple[InputFile, ...], given: Mapping[str, Any]) -> Files:
        """Return the files that were typed; `given` may have TableOptions as "table"."""
        paths = {file.name: given.get(file.name) for file in declared}
        found = {
            name: None if path is None else as_source(path, f"--{name}").absolute() for name, path in paths.items()
        }
        return cls(declared, found, given.get("table") or TableOptions())

    @classmethod
    def again(cls, run: RunStore, declared: tuple[InputFile, ...]) -> Files:
        """Return the files of an existing run if they are unchanged; InputError names the first that is not."""
        known: Any = run.config.get("inputs")
        table = stored_table(run)
        found: dict[str, AnyPath | None] = {}
        for file in declared:
            try:
                entry = known[file.name]
                if entry is None and file.one_of:
                    found[file.name] = None
                    continue
                beside = file.beside is not None and bool(entry["beside_rows"])
            except (KeyError, TypeError) as error:
                raise StoreError(
                    "the run does not say what it learns from",
                    where=run.name,
                    remedy="fit again, with the data in files",
                ) from error
            found[file.name] = None if beside else check_unchanged(entry, file.what)
        return cls(declared, found, table)

    @property
    def data_table(self) -> TableOptions:
        """Return options by which the data is read, where it is delimited text, without those for other files."""
        targets, data = self.paths.get("targets"), self["data"]
        table = self.table if targets is None else replace(self.table, target_column=None)
        # Options of text were given for pairs or targets, then: for a binary file of rows they would be refused.
        is_for_others = table_suffix(data) is None and any(
            path is not None and table_suffix(path) is not None for path in self.paths.values()
        )
        return replace(table, header=None, delimiter=None, decimal=None) if is_for_others else table

    def __getitem__(self, name: str) -> AnyPath:
        found = self.paths[name]
        assert found is not None, name
        return found

    def fingerprints(self, **shapes: tuple[int, ...]) -> Json:
        """Return for each input what a run's configuration stores: path, size, checksum, and shape if given."""
        found: Json = {}
        for file in self.declared:
            path = self.paths[file.name]
            if path is None and file.beside is None:
                found[file.name] = None  # not given
                continue
            entry = dict(found[str(file.beside)]) if path is None else fingerprint(path)
            # Only where there are any, as configurations of earlier versions have none, and identities must not change.
            if file.name == "data" and (options := self.table.as_dict()):
                entry[TABLE] = options
            if file.name in shapes:
                entry["shape"] = [int(size) for size in shapes[file.name]]
            if file.beside is not None:
                entry["beside_rows"] = path is None
            found[file.name] = entry
        return found


def stored_table(run: RunStore) -> TableOptions:
    """Return how a run reads delimited text; StoreError for damaged options."""
    inputs: Any = run.config.get("inputs")
    data = inputs.get("data") if isinstance(inputs, dict) else None
    kept = data.get(TABLE, {}) if isinstance(data, dict) else {}
    try:
        return TableOptions.from_dict(kept)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError("damaged options of a table", where=run.name, got=str(kept)[:200]) from error


def check_new(path: str | Path, *, may_be_empty_folder: bool = False, option: str = "--out") -> Path:
    """Return `path`, absolute, if something new can be made there; `option` names it in errors."""
    path = as_path(path, option).absolute()
    empty = may_be_empty_folder and is_unbegun(path)
    # lexists: a dangling link would be written through.
    if os.path.lexists(path) and not empty:
        raise InputError("exists already and is never overwritten", where=str(path), remedy=f"choose another {option}")
    for folder in path.parents:
        is_run = all((folder / name).is_file() for name in ("LOCK", "config.json"))
        if is_run or any((folder / name).is_file() for name in METADATA):
            what, wanted = "inside a run or a zarr store, which another file damages", f"a path outside {folder}"
            raise InputError(what, where=str(path), wanted=wanted, remedy=f"choose another {option}")
        if os.path.lexists(folder) and not folder.is_dir():
            what = "a file or broken link, not a folder"
            raise InputError(
                what, where=str(folder), wanted=f"the folder of {path.name}", remedy=f"choose another {option}"
            )
    if not path.parent.is_dir():
        raise InputError(
            "its folder does not exist", where=str(path), remedy=f"make the folder, or choose another {option}"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise DiskError("its folder cannot be written to", where=str(path), remedy=f"choose another {option}")
    return path


def fingerprint(path: AnyPath, like: Mapping[str, object] | None = None) -> Json:
    """Return a file's absolute path, bytes and checksum; of a folder those of its files with their names.

    Read once, at the speed of the disk. like: a fingerprint that it is to be compared with, whose checksum earlier versions
    took of pieces of a large file, or by another formula.
    """
    if isinstance(path, ObjectPath):
        return _fingerprint_of_objects(path)
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    found = {"path": str(path), "size": sum(file.stat().st_size for file in files)}
    name, whole = "crc32c", True
    # By the formula of the version that made the run, or an unchanged file would look changed.
    if like is not None and "crc32c" not in like:
        name, whole = "crc32", like.get("checksum_of", "whole") == "whole"
    extended = _crc32c if name == "crc32c" else zlib.crc32
    checksum = 0
    for file in files:
        checksum = extended(str(file.relative_to(path)).encode(), checksum)
        for piece in _pieces(file, whole=whole, count=max(2, PIECES // len(files))):
            checksum = extended(piece, checksum)
    return {**found, name: checksum, "checksum_of": "whole" if whole else f"pieces of {PIECE_BYTES} bytes"}


def _fingerprint_of_objects(path: ObjectPath) -> Json:
    """Return the fingerprint of an object, or of all objects below: size and checksum.
    The checksum is of their names and ETags, which change with the content; without ETags, of the content."""
    found, checksum = path.listed(), 0
    if not found:
        raise InputError("no such object", where=str(path))
    by_tags = all(map(tag_of, found.values()))
    for name, info in found.items():
        checksum = _crc32c(name.encode(), checksum)
        known = tag_of(info).encode() if by_tags else (path / name if name else path).read()
        checksum = _crc32c(known, checksum)
    size = sum(int(info["size"]) for info in found.values())
    checksum_of = "tags" if by_tags else "whole"
    return {"path": str(path), "size": size, "crc32c": checksum, "checksum_of": checksum_of}


def _crc32c(piece: bytes, checksum: int) -> int:
    return int(google_crc32c.extend(checksum, piece))


def _pieces(file: Path, *, whole: bool, count: int) -> Iterator[bytes]:
    size = file.stat().st_size
    # Unbuffered: pieces are large, and a buffer would copy each.
    with open(file, "rb", buffering=0) as content:
        if whole or size <= count * PIECE_BYTES:
            while piece := content.read(HASHED_BYTES):
                yield piece
            return
        for start in np.linspace(0, size - PIECE_BYTES, count).astype(np.int64):
            content.seek(int(start))
            yield content.read(PIECE_BYTES)


def check_unchanged(known: Json, what: str) -> AnyPath:
    """Return the path of an input that is unchanged since the run was made; InputError if it has changed."""
    path = as_source(str(known["path"]))
    if not path.exists():
        raise InputError(f"the {what} of this run are gone", where=str(path), remedy="put the file back")
    now = fingerprint(path, known)
    for name in ("size", *(now.keys() & {"crc32c", "crc32"})):
        if now[name] != known[name]:
            raise InputError(
                f"the {what} have changed since the run began",
                where=str(path),
                got=f"{name} {now[name]}",
                wanted=f"{name} {known[name]}",
                remedy="put the file back, or begin a new run",
            )
    return path

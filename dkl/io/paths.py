"""A user's paths, checked as the system looks them up, and addresses of objects in stores beyond the disk, as s3://bucket/key.

fsspec opens them, by the package that speaks to their store (s3fs, gcsfs), with what that finds in the environment:
credentials, region, and AWS_ENDPOINT_URL for a server that is not Amazon's. An address alone is sent to a worker, which
opens it for itself; it never contains a credential, nor is one sent with it. Imports fsspec when first needed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedReader, BytesIO, TextIOWrapper
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO, Any

from dkl.errors import DiskError, DklError, InputError, ResourceError

EXTRAS = {"s3": "s3", "gs": "gcs", "memory": None}
"""The extra of dkl that reads each kind of address; `memory` is this process' own, to try things with."""
WANTED = "s3://, gs:// or memory://"
HELD, HELD_BYTES = 4, 4_000_000
"""Number of objects kept in memory, and the largest size in bytes of each."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or GOOGLE_APPLICATION_CREDENTIALS, here and where "
    "workers run, for who may read and write there"
)
_PASSING = {408, 409, 425, 429}
"""HTTP status of refusals that pass by themselves: a timeout, a conflict, too early, too many requests."""
_REFUSED = {"NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError", "TokenRetrievalError"}
_AWAY = {"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "ClientError"}
"""Errors of the packages below, recognized by their names: none of the packages need be installed."""


def is_address(path: object) -> bool:
    """Return whether `path` is the address of an object in any kind of store, not a local path."""
    return isinstance(path, ObjectPath) or (isinstance(path, str) and _ADDRESS.match(path) is not None)


def is_shortened(path: object) -> bool:
    """Return whether `path` is an address from which `pathlib` has removed a slash."""
    return not isinstance(path, str) and re.match(rf"({'|'.join(EXTRAS)}):/[^/]", str(path)) is not None


@dataclass(frozen=True)
class ObjectPath:
    """An object, or all objects below a prefix; of these `is_dir` says so. Its methods raise InputError for what is not
    there or not to be read, and ResourceError for a store that cannot be reached."""

    url: str

    @classmethod
    def of(cls, path: Any, where: str = "path") -> ObjectPath:
        """Parse an address; raise InputError for an unsupported kind of store, or if it names no object."""
        if isinstance(path, ObjectPath):
            return path
        found = _ADDRESS.match(path)
        scheme = found[1] if found else ""
        rest = path[len(scheme) + 3 :].strip("/")
        if scheme not in EXTRAS:
            raise InputError("not a kind of store that is known", where=where, got=f"{scheme}://", wanted=WANTED)
        if "@" in rest.partition("/")[0]:  # not shown: it may be a password
            raise InputError(
                "a name or password in an address", where=where, got=f"{scheme}://...", remedy=_CREDENTIALS
            )
        if not rest or (scheme != "memory" and "/" not in rest) or {"", ".", ".."} & {*rest.split("/")}:
            raise InputError("no object's address", where=where, got=path, wanted=f"{scheme}://bucket/key")
        return cls(f"{scheme}://{rest}")

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def scheme(self) -> str:
        """Return the kind of store, such as "s3"."""
        return self.url.partition("://")[0]

    @property
    def key(self) -> str:
        """Return bucket and key, as fsspec has them."""
        return ("/" if self.scheme == "memory" else "") + self.url.partition("://")[2]

    @property
    def name(self) -> str:
        """Return the last part of the key."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """Return the suffix of the object's name, such as ".npy"."""
        return PurePosixPath(self.url).suffix

    @property
    def is_of_this_process(self) -> bool:
        """Return whether the object is in this process' own memory, which no other process sees."""
        return self.scheme == "memory"

    @property
    def files(self) -> Any:
        """Return fsspec's file system of the store. Listings are not kept: others write there too."""
        with self.telling():
            import fsspec

            # fsspec keeps one object a store and thread: asking for it each time is cheap, and is safe after a fork or on a worker.
            return fsspec.filesystem(self.scheme, use_listings_cache=False)

    def absolute(self) -> ObjectPath:
        """Return the address itself, which is absolute."""
        return self

    def exists(self) -> bool:
        """Return whether there is an object at this address, or any below it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether there is an object at this address itself."""
        with self.telling():
            return bool(self.files.isfile(self.key))

    def is_dir(self) -> bool:
        """Return whether there are objects below this address."""
        with self.telling():
            return bool(self.files.isdir(self.key))

    def stat(self) -> SimpleNamespace:
        """Return the object's size in bytes, as st_size."""
        with self.telling():
            return SimpleNamespace(st_size=int(self.files.size(self.key)))

    def open(self, mode: str = "rb", encoding: str | None = None, newline: str | None = None) -> IO[Any]:
        """Open the object for reading, by requests for some megabytes at a time.

        A small object is fetched once for as long as its content is the same.
        """
        with self.telling():
            info = self.files.info(self.key)
            # Kept by its tag alone: without one a changed object could not be seen.
            if info["size"] <= HELD_BYTES and (tag := tag_of(info)):
                file: Any = BytesIO(_held(self, tag))
            else:
                file = BufferedReader(self.files.open(self.key, "rb"))  # with all that Python's own files can do
        return file if "b" in mode else TextIOWrapper(file, encoding=encoding, newline=newline)

    def read(self) -> bytes:
        """Return the whole content of the object."""
        with self.telling():
            content: bytes = self.files.cat_file(self.key)
            return content

    def write(self, content: bytes) -> None:
        """Write the content of the object, replacing any earlier one."""
        with self.telling():
            self.files.pipe_file(self.key, content)

    def read_ranges(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Return the bytes of each range, by as many requests, several under way at once."""
        with self.telling():
            found: list[bytes] = self.files.cat_ranges([self.key] * len(starts), starts, stops)
            return found

    def listed(self) -> dict[str, dict[str, Any]]:
        """Return the store's metadata of each object below, by relative name, sorted; an object's own is ""."""
        with self.telling():
            files = self.files
            files.invalidate_cache()
            found = files.find(self.key, detail=True)
        skipped = len(self.key) + 1
        return {name[skipped:]: info for name, info in sorted(found.items())}

    def names(self) -> list[str]:
        """Return the names of the objects and folders directly below."""
        with self.telling():
            try:
                found = self.files.ls(self.key, detail=False)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [name.rstrip("/").rpartition("/")[2] for name in found if name.rstrip("/") != self.key]

    def require_file(self) -> None:
        """Raise InputError if there is no object at this address, or only a folder."""
        with self.telling():
            info = self.files.info(self.key)
        if info["type"] != "file":
            raise InputError("a folder cannot be read as a file", where=self.url)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Turn errors of the packages below into errors of ours that say what to do."""
        try:
            yield
        except DklError:
            raise
        except ImportError as error:
            remedy = f"pip install 'dkl[{EXTRAS[self.scheme]}]'" if EXTRAS[self.scheme] else None
            raise InputError("a package is missing", where=self.url, got=error, remedy=remedy) from error
        # Of any class: s3fs, gcsfs and botocore have no common one, and are recognized by name, as they need not be installed.
        except Exception as error:
            if (ours := _told(error, self.url)) is None:
                raise
            raise ours from error


def status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status of the answer that an error, or one of its causes, holds; None without an answer.

    By the status alone: the body of an answer differs from server to server. MinIO's and SeaweedFS' lack the
    <Condition> by which s3fs knows a refused conditional put.
    """
    while error is not None:
        answer = getattr(error, "response", None)
        if isinstance(answer, dict):
            status: int | None = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status
        error = error.__cause__
    return None


def tag_of(info: Mapping[str, object]) -> str:
    """Return the tag (ETag) of an object's content from its metadata `info`; "" if the store sets none."""
    return str(info.get("ETag") or info.get("etag") or "").strip('"')


@lru_cache(HELD)
def _held(path: ObjectPath, tag: str) -> bytes:
    """Return the content of an object with this tag, cached: headers are read repeatedly."""
    return path.read()


def _told(error: Exception, url: str) -> DklError | None:
    """Translate an error of a storage package into a DklError; None for any other error."""
    name, got = type(error).__name__, str(error) or type(error).__name__
    # Order matters below: most of these are OSErrors, for which the last branch would say that the store is away.
    if isinstance(error, FileNotFoundError) and "bucket" in got.lower():
        return InputError("no such bucket", where=url, remedy="make it first")
    if isinstance(error, FileNotFoundError):
        return InputError("no such object", where=url)
    if isinstance(error, PermissionError) or name in _REFUSED or "credentials" in got.lower():
        return InputError("its store lets nobody in by these credentials", where=url, got=got, remedy=_CREDENTIALS)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return DiskError("no space on its store", where=url, got=got)
    if (status := status_of(error)) is not None and 400 <= status < 500 and status not in _PASSING:
        return InputError("its store refuses this", where=url, got=f"{got} (status {status})")
    if isinstance(error, OSError) or name in _AWAY:
        remedy = "try again once the network is there; AWS_ENDPOINT_URL names a server that is not Amazon's"
        return ResourceError("its store cannot be reached", where=url, got=f"{name}: {got}", remedy=remedy)
    return None


AnyPath = Path | ObjectPath


_SHOWN = 40  # characters of a name that is too long to be shown


def as_path(path: object, where: str = "path") -> Path:
    """Return `path` as a Path, which need not exist, "~" as the user's home; InputError for others, and names no file can have.

    >>> as_path("X" * 300 + ".npz")
    Traceback (most recent call last):
    dkl.errors.InputError: path: a name that is too long for a file; got XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX...
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError("not a path", where=where, got=repr(path), wanted="a string or pathlib.Path")
    if is_shortened(path):
        raise InputError("an address is no pathlib.Path", where=where, got=path, remedy="pass it as a string")
    if is_address(path):
        wanted, remedy = "a path on this machine", "copy it from or to there with the store's own tools"
        raise InputError("an address of a store", where=where, got=path, wanted=wanted, remedy=remedy)
    # A shell expands only what begins a word: neither --data=~/X.npy nor what is given in Python. "./~" is a folder of this name.
    named = Path(os.path.expanduser(os.fsdecode(path)))
    try:
        # The system is asked: how long a name may be differs from one file system to the next.
        os.lstat(named.absolute())
    except ValueError as error:  # a zero byte
        raise InputError("not a path", where=where, got=ascii(str(named))[:_SHOWN]) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(
                "a name that is too long for a file", where=where, got=f"{str(named)[:_SHOWN]}..."
            ) from error
    return named


def as_source(path: object, where: str = "path") -> AnyPath:
    """Return `path`, which is to be read, as a Path, or as an ObjectPath for an address in a store.

    Raises InputError as `as_path` does, and for addresses that are not read.

    >>> as_source("ftp://bucket/X.npy", "--data")
    Traceback (most recent call last):
    dkl.errors.InputError: --data: not a kind of store that is known; got ftp://; wanted s3://, gs:// or memory://
    """
    return ObjectPath.of(path, where) if is_address(path) else as_path(path, where)


# -- kinds of files, by their names -------------------------------------------------------------------------------------

TABLES = (".csv", ".tsv")
"""Suffixes of files of delimited text, which .gz may follow."""


def table_suffix(path: AnyPath) -> str | None:
    """Return ".csv" or ".tsv" for a file of delimited text, also one packed by gzip; None for other files."""
    name = path.name.lower().removesuffix(".gz")
    return next((suffix for suffix in TABLES if name.endswith(suffix)), None)


def is_packed(path: AnyPath) -> bool:
    """Return whether a file is packed by gzip, by its name."""
    return path.name.lower().endswith(".gz")

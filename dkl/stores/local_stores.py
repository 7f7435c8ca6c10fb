"""zarr's stores in folders, as ours are written and others' are read.

Apart from who uses them: zarr takes a quarter of a second to import, which a command that refuses its input does not need. Modules of
stores import it, and this one, where they open or make an array.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore

from dkl.errors import InputError
from dkl.io.packed_arrays import METADATA
from dkl.io.paths import require_file
from dkl.stores.private_files import MODE


class PrivateFiles(LocalStore):
    """A store in a folder, whose files are for the owner alone; zarr's own are as the umask leaves them.

    The folder above it must be there: zarr would make it, and all above, at the path of a run that was renamed.
    """

    async def _open(self, **how: Any) -> None:
        if not self.read_only:
            self.root.mkdir(exist_ok=True)
        await super()._open(**how)

    async def set(self, key: str, value: Any) -> None:
        """Write a file, whole or not at all. Raises FileNotFoundError where the store's folder is gone."""
        await self._write(key, value, os.replace)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write a file, unless there is one."""
        with suppress(FileExistsError):
            await self._write(key, value, _link)

    async def _write(self, key: str, value: Any, put: Callable[[Path, Path], None]) -> None:
        self._check_writable()
        if not self._is_open:
            await self._open()
        await asyncio.to_thread(_write_file, self.root, key, value.as_numpy_array(), put)


def _write_file(root: Path, key: str, content: Any, put: Callable[[Path, Path], None]) -> None:
    """Write a file under a unique name, then put it in its place; folders are made below the root alone."""
    path = root / key
    for parent in reversed(path.relative_to(root).parents[:-1]):
        (root / parent).mkdir(exist_ok=True)
    partial = path.with_suffix(f".{uuid.uuid4().hex}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb") as file:
            file.write(content)
        put(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _link(source: Path, target: Path) -> None:
    """Move a file without overwriting: raises FileExistsError if `target` exists."""
    os.link(source, target)
    source.unlink()


LARGEST_METADATA = 32_000_000
"""Maximum bytes of a file of metadata."""


class PlainFiles(LocalStore):
    """An array in a folder, of which ordinary files alone are read: of a pipe or /dev/zero there is no end."""

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return a file's bytes, or None if it does not exist; InputError for a device or pipe."""
        path = Path(self.root, key)
        if os.path.lexists(path):  # a folder in a chunk's place would be read as fill values
            require_file(path)
            if path.name in METADATA and (size := path.stat().st_size) > LARGEST_METADATA:
                raise InputError("larger than metadata is", where=str(path), got=f"{size} bytes")
        return await super().get(key, prototype, byte_range)

"""zarr's stores in folders, as ours are written and others' are read.

Apart from who uses them: zarr takes a quarter of a second to import, which a command that refuses its input does not need. Modules of
stores import it, and this one, where they open or make an array.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore

from dkl._packed_arrays import METADATA
from dkl._paths import require_file
from dkl.errors import InputError
from dkl.stores.private_files import MODE


class PrivateFiles(LocalStore):
    """A store in a folder, whose files are for the owner alone; zarr's own are as the umask leaves them.

    The folder above it must be there, and once it is opened its own: zarr would make them, at the path of a run that was renamed.
    """

    def __init__(self, root: Path | str, *, read_only: bool = False) -> None:
        """Raises FileNotFoundError."""
        if not read_only:
            _require_folder(Path(root).parent)
        super().__init__(root, read_only=read_only)

    async def set(self, key: str, value: Any) -> None:
        """Write a file."""
        _require_folder(self.root)
        await super().set(key, value)
        os.chmod(Path(self.root, key), MODE)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write a file, unless there is one."""
        await super().set_if_not_exists(key, value)
        os.chmod(Path(self.root, key), MODE)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))


LARGEST_METADATA = 32_000_000
"""Bytes of a file of metadata at most."""


class PlainFiles(LocalStore):
    """An array in a folder, of which ordinary files alone are read: of a pipe or /dev/zero there is no end."""

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """A file's bytes, None where there is none; InputError for a device or pipe."""
        path = Path(self.root, key)
        if os.path.lexists(path):  # a folder in a chunk's place would be read as fill values
            require_file(path)
            if path.name in METADATA and (size := path.stat().st_size) > LARGEST_METADATA:
                raise InputError("larger than metadata is", where=str(path), got=f"{size} bytes")
        return await super().get(key, prototype, byte_range)

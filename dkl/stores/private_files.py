"""Files for the owner's eyes alone, whatever the umask; and folders of runs, in which links are not followed."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from dkl.errors import StoreError

MODE = 0o600


def create_private(path: Path) -> IO[bytes]:
    """Open a new file to write to, for the owner alone. Raises OSError, FileExistsError too."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    os.fchmod(descriptor, MODE)  # a umask may have taken the owner's rights too
    return os.fdopen(descriptor, "wb")


def require_plain_tree(folder: Path) -> None:
    """Raise StoreError for a link, device or pipe anywhere in a run's folder.

    What it leads to is not the run's.
    """
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:  # a checkpoint that goes while we look
        return
    except OSError as error:
        raise StoreError("a folder that cannot be read", where=str(folder), got=error.strerror) from error
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            require_plain_tree(Path(entry.path))
        elif not entry.is_file(follow_symlinks=False):
            require_plain_file(Path(entry.path))


def require_plain_file(path: Path) -> None:
    """Raise StoreError for a link, device or pipe at a path in a run's folder."""
    if path.is_symlink():
        raise StoreError("a link in a run's folder", where=str(path), remedy="put the file itself there")
    if _is_special(str(path)):
        raise StoreError("a device or pipe in a run's folder", where=str(path), remedy="remove it")


def _is_special(path: str) -> bool:
    try:
        return not stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False

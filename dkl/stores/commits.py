"""Atomic commits of folders, whole or not at all: of checkpoints, partial sums, states and models.

    root/tmp-<label>-<random>   partial: being written; no reader looks at it
    root/gen-000040             committed: all that is in it is on disk
    root/del-<random>           on its way out

What is to be committed is written into a partial folder; its files and then its folders are fsynced; the folder is
renamed; its parent is fsynced. A rename is a single step of the file system, so a reader, or a run that is resumed after
SIGKILL, finds the old folder or the new one. fsync before it, because a system may write the rename to disk before the
data: after a power cut files of that name would hold zeros. fsync of the parent after it, because the name is data
of the parent's. In-place checkpoints were silently wrong in half of the killed runs that were tried.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dkl.stores.folders import disk_errors


def fsync(path: Path) -> None:
    """Make a file's content, or the names in a folder, outlast a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(root: Path, *, deep: bool = True) -> None:
    """Fsync `root` (where it exists) and all that is in it, or the names in it alone. Raises OSError."""
    if deep and root.is_dir():
        for entry in root.iterdir():
            fsync_tree(entry)
    if root.exists():
        fsync(root)


def begin_folder(root: Path, label: str = "") -> Path:
    """Create a partial folder in `root`, accessible to its owner alone. Raises OSError.

    Every commit has its own folder: tasks of an attempt that was taken for lost may still be writing into theirs.
    """
    folder = root / "-".join(part for part in ("tmp", label, uuid.uuid4().hex[:8]) if part)
    folder.mkdir(mode=0o700)
    return folder


def commit_folder(partial: Path, target: Path) -> None:
    """Rename a partial folder to `target`, in the same parent, replacing any such folder. Raises OSError.

    The partial folder is left where it is when this fails, for the caller to remove.
    """
    fsync_tree(partial)
    # Out of the way at a stroke, not file by file: a crash leaves the old folder, the new one or none, never a part.
    aside = _set_aside(target) if target.exists() else None
    try:
        os.rename(partial, target)
    except OSError:
        if aside is not None:
            os.rename(aside, target)
        raise
    fsync(target.parent)
    if aside is not None:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def replaced_folder(target: Path, failure: str, label: str = "") -> Iterator[Path]:
    """Yield a partial folder that is committed as `target` when the block ends, or removed on failure.

    Raises DiskError, which says `failure`, where the system cannot write.
    """
    with disk_errors(failure, target):
        partial = begin_folder(target.parent, label)
    try:
        yield partial
        with disk_errors(failure, target):
            commit_folder(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)  # a full disk needs the bytes it took
        raise


def numbered_folders(root: Path, name: str) -> list[Path]:
    """Return the committed folders `root`/`name`-<digits>, by ascending number.

    Names sort otherwise beyond a million.
    """
    found = (folder for folder in root.glob(f"{name}-*") if folder.name[len(name) + 1 :].isdigit())
    return sorted(found, key=number_of)


def number_of(folder: Path) -> int:
    """Return the number in the name of one of `numbered_folders`."""
    return int(folder.name.rpartition("-")[2])


def keep_newest(root: Path, name: str, number: int, count: int) -> None:
    """Remove all of the numbered folders but the `count` newest up to `number`, which was committed just now.

    Those of higher numbers go too: the work has gone back behind them, past damage. Failing to clear up is no failure of
    the commit: what is left goes with the next one.
    """
    folders = numbered_folders(root, name)
    later = [folder for folder in folders if number_of(folder) > number]
    for folder in later + folders[: len(folders) - len(later)][:-count]:
        with suppress(OSError):
            shutil.rmtree(_set_aside(folder), ignore_errors=True)


def remove_leftovers(root: Path, but: str | None = None) -> None:
    """Remove what attempts that died have left in `root`; only for who holds the run's lock.

    but: the label of an attempt whose partial folders stay.
    """
    remove_folders(
        path for pattern in ("tmp-*", "del-*") for path in root.glob(pattern) if not but or but not in path.name
    )


def remove_torn_files(folder: Path) -> None:
    """Remove files (`*.partial`) that killed processes were writing; only once no process writes there.

    zarr writes a chunk under a temporary name and renames it. No reader looks at what is left, but it takes space.
    """
    for path in folder.rglob("*.partial"):
        with suppress(OSError):
            path.unlink()


def remove_folders(folders: Iterable[Path]) -> None:
    """Remove folders as far as that is possible; no error where it is not."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _set_aside(folder: Path) -> Path:
    aside = folder.parent / f"del-{uuid.uuid4().hex[:8]}"
    os.rename(folder, aside)
    return aside

"""Folders and files of runs: private, locked, committed whole, rid of leftovers; errors of the disk as ours.

The lock is on a file and not on a path: a folder that is renamed, or deleted and recreated, leaves the path to others.
Every write in a run's folder first compares the file at the path with the one that is locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dkl.errors import DiskError, InputError, StoreError

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


def is_unbegun(folder: Path) -> bool:
    """Return whether a folder is empty or holds only what a killed `RunStore.create` leaves.

    A configuration comes last: with it a run can be resumed. The lock comes first: without it the folder is not ours.
    """
    if folder.is_symlink() or not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    if not names:
        return True
    if "LOCK" not in names or not all(name == "LOCK" or _is_beginning(name) for name in names):
        return False
    lock = folder / "LOCK"
    # As we sign it, or not yet: another program's LOCK is not ours to remove.
    return lock.is_file() and lock.read_bytes()[:4] in (b"", b"pid ")


def _is_beginning(name: str) -> bool:
    """Return whether a file named `name` is written before a run has its configuration."""
    return name == "zarr.json" or (name.startswith(("zarr.", "config.json.")) and name.endswith(".partial"))


def clear_beginnings(folder: Path) -> None:
    """Remove what an attempt that died has left before its configuration; only under the lock. Raises OSError."""
    for entry in list(folder.iterdir()):
        if _is_beginning(entry.name):
            entry.unlink()


TAKEN = re.compile(r"pid (\d{1,9}) on (\S+), attempt ")
LOOKS, LOOK_SECONDS = 40, 0.05
"""Number of looks at a lock that is held, until it names its holder, and the pause between them."""
_held: dict[int, Path] = {}
"""Folders whose locks this process holds, by the descriptors of these."""


def take(folder: Path) -> int:
    """Take the lock; return the descriptor that holds it. Raises InputError that names its holder."""
    # O_NOFOLLOW: through a link there another file would be locked, and signed.
    descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
    try:
        # By flock: a lock by fcntl.lockf ends when this process closes any other descriptor of the file.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise InputError(
            "another process works on this run",
            where=str(folder),
            got=holder or "a lock",
            remedy="wait for it to end, or end it",
        ) from error
    _held[descriptor] = folder
    return descriptor


def release(descriptor: int) -> None:
    """Give up a lock."""
    del _held[descriptor]
    os.close(descriptor)


def follow(old: Path, new: Path) -> None:
    """Take note that this process has renamed a folder that it holds."""
    _held.update({descriptor: new for descriptor, folder in _held.items() if folder == old})


def require_place(path: str | os.PathLike[str]) -> None:
    """Raise DiskError if `path` is in a folder that this process holds, and that is no longer where it was."""
    text = os.fspath(path)
    # Of a copy, as other threads take and release runs; by the slash run-10 is not in run-1.
    for descriptor, folder in tuple(_held.items()):
        if f"{text}/".startswith(f"{folder}/") and not _is_there(folder, descriptor):
            raise DiskError(
                "the run's folder was renamed or deleted while it was worked on",
                where=str(folder),
                got=_place_of(descriptor),
                remedy="`dkl resume` it where it is now, or begin a new run",
            )


def _is_there(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder / "LOCK"), os.fstat(descriptor))
    except OSError:
        return False


def _place_of(descriptor: int) -> str:
    """Return the present path of the folder with an open file, as far as the system says."""
    if not os.fstat(descriptor).st_nlink:
        return "a deleted folder"
    try:
        return os.path.dirname(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:  # a system without /proc
        return "another path"


def sign(descriptor: int, attempt: str) -> None:
    """Say that this process has the lock. OSError where the disk has no space for it: the lock is held all the same."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, attempt {attempt}".encode(), 0)


def _holder(descriptor: int) -> str:
    """Return the lock's holder as it has written itself, waiting a moment for one that has just taken it.

    Until that has written, the file is empty or names a process that died with the lock.
    """
    for _ in range(LOOKS):
        text = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        if (named := TAKEN.match(text)) and (named[2] != socket.gethostname() or _lives(int(named[1]))):
            break
        time.sleep(LOOK_SECONDS)
    return text


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another account's
        return True
    return True


REMEDY = "free space on that disk, then `dkl resume` the run"
GONE = "a folder was deleted while it was written to: put it back, or begin again in a new one"


@contextmanager
def disk_errors(what: str, path: Path | str, remedy: str = REMEDY) -> Iterator[None]:
    """Turn the system's errors (OSError) into DiskErrors that name `what` failed, path and remedy.

    DiskError, before anything is done, for a path in a run's folder that is no longer where this process has locked it.
    """
    require_place(path)
    try:
        yield
    except OSError as error:
        require_place(path)  # again: if the folder went meanwhile, that is the cause, whatever failed
        raise DiskError(
            f"{what} ({error.strerror})", where=str(path), remedy=GONE if error.errno == errno.ENOENT else remedy
        ) from error


def write_all(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Write bytes at `offset` of an open file, in however many calls it takes. Raises OSError."""
    done = 0
    while done < len(buffer):
        done += os.pwrite(descriptor, buffer[done:], offset + done)


# -- commits -----------------------------------------------------------------------------------------------------------
# Atomic commits of folders, whole or not at all: of checkpoints, partial sums, states and models.
#     root/tmp-<label>-<random>   partial: being written; no reader looks at it
#     root/gen-000040             committed: all that is in it is on disk
#     root/del-<random>           on its way out
# What is to be committed is written into a partial folder; its files and then its folders are fsynced; the folder is
# renamed; its parent is fsynced. A rename is a single step of the file system, so a reader, or a run that is resumed after
# SIGKILL, finds the old folder or the new one. fsync before it, because a system may write the rename to disk before the
# data: after a power cut files of that name would hold zeros. fsync of the parent after it, because the name is data
# of the parent's. In-place checkpoints were silently wrong in half of the killed runs that were tried.


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
    fsync(target.parent)  # before the old folder goes: until then a power cut may undo the rename
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
            # Renamed first: a folder of which some files are gone must not look committed.
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

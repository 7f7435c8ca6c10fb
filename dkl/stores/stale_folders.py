"""A run's folder before it is a run: what an attempt that was killed on its way has left there."""

from __future__ import annotations

from pathlib import Path


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
    return lock.is_file() and lock.read_bytes()[:4] in (b"", b"pid ")


def _is_beginning(name: str) -> bool:
    """Return whether a file named `name` is written before a run has its configuration."""
    return name == "zarr.json" or (name.startswith(("zarr.", "config.json.")) and name.endswith(".partial"))


def clear_beginnings(folder: Path) -> None:
    """Remove what an attempt that died has left before its configuration; only under the lock. Raises OSError."""
    for entry in list(folder.iterdir()):
        if _is_beginning(entry.name):
            entry.unlink()

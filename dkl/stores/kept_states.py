"""States of work under way, kept in between: each is on disk whole, or not at all.

    root/state-000012/{name, ...}       an array each, with checksums
                     /MANIFEST.json     their names, and notes on the state; its own crc32c

A new state is written beside the old one, synced, renamed, and the old one goes. What is damaged counts as not there:
it is computed again.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.disk import disk_errors
from dkl.stores.generations import fsync_tree, read_json, write_json
from dkl.stores.run import read_array, write_array

Notes = dict[str, Any]


class KeptStates:
    """The states of one work; `name` is that of a state, `what` tells in an error what could not be kept."""

    def __init__(self, root: Path, name: str = "state", what: str = "the state") -> None:
        self.root, self.name, self.failure = root, name, f"could not keep {what}"

    def write(self, number: int, arrays: dict[str, NDArray], notes: Notes) -> None:
        """Keep a state in place of those before; `number` grows with each."""
        with disk_errors(self.failure, self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
            folder = self.root / f"tmp-{uuid.uuid4().hex[:8]}"
            folder.mkdir(mode=0o700)
        try:
            for name, values in arrays.items():
                write_array(folder / name, values, tuple(f"axis_{axis}" for axis in range(values.ndim)))
            write_json(folder / "MANIFEST.json", {"arrays": list(arrays), **notes})
            with disk_errors(self.failure, folder):
                fsync_tree(folder)
                target = self.root / f"{self.name}-{number:06d}"
                shutil.rmtree(target, ignore_errors=True)
                os.rename(folder, target)
                fsync_tree(self.root, deep=False)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # the room it took is needed
            raise
        for old in self._states():
            if old != target:
                shutil.rmtree(old, ignore_errors=True)

    def read(self, wanted: Callable[[Notes], bool] = lambda notes: True) -> tuple[int, dict[str, NDArray], Notes]:
        """(number, arrays, notes) of the newest state that is whole and `wanted`, or nothing for the last two.

        No state, wanted or not, has a higher number.
        """
        states = self._states()
        number = self._number(states[-1]) if states else 0
        for folder in reversed(states):
            try:
                notes = read_json(folder / "MANIFEST.json", sealed=True)
                if wanted(notes):
                    return number, {name: read_array(folder / name) for name in notes["arrays"]}, notes
            except (StoreError, KeyError, TypeError, ValueError):
                continue
        return number, {}, {}

    def drop(self) -> None:
        """Once the result is there."""
        shutil.rmtree(self.root, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what an attempt that died has left."""
        for left in self.root.glob("tmp-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _states(self) -> list[Path]:
        folders = self.root.glob(f"{self.name}-*")
        return sorted((folder for folder in folders if self._digits(folder).isdigit()), key=self._number)

    def _digits(self, folder: Path) -> str:
        return folder.name[len(self.name) + 1 :]

    def _number(self, folder: Path) -> int:
        return int(self._digits(folder))

"""A pass over rows, kept in between: partial sums are on disk whole, or not at all.

    run/sums/sums-000012/{node-2-3-0, ...}      an array a component of a partial sum, with checksums
                        /MANIFEST.json          the nodes, which pass it is, and how far; its own crc32c
             done.json                          passes that have ended (of a Gram matrix that is made row by row)

A new state is written beside the old one, synced, renamed, and the old one goes. What is damaged counts as not there:
it is computed again.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from dkl.errors import StoreError
from dkl.stores.disk import disk_errors
from dkl.stores.generations import fsync_tree, read_json, write_json
from dkl.stores.run import read_array, write_array

Partials = dict[tuple[int, int], tuple[Any, ...]]


class PartialSums:
    """The states of the passes of one run."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, number: int, pass_number: int, partials: Partials) -> None:
        """Keep the state of a pass; `number` grows with each."""
        with disk_errors("could not keep the sums", self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
            folder = self.root / f"tmp-{uuid.uuid4().hex[:8]}"
            folder.mkdir(mode=0o700)
        try:
            for (level, index), arrays in partials.items():
                for k, values in enumerate(arrays):
                    dims = tuple(f"axis_{axis}" for axis in range(values.ndim))
                    write_array(folder / f"node-{level}-{index}-{k}", values, dims)
            nodes = [[level, index, len(arrays)] for (level, index), arrays in partials.items()]
            write_json(folder / "MANIFEST.json", {"nodes": nodes, "pass": pass_number})
            with disk_errors("could not keep the sums", folder):
                fsync_tree(folder)
                target = self.root / f"sums-{number:06d}"
                shutil.rmtree(target, ignore_errors=True)
                os.rename(folder, target)
                fsync_tree(self.root, deep=False)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # the room it took is needed
            raise
        for old in self._states():
            if old != target:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, pass_number: int) -> tuple[int, Partials]:
        """(number, state) to go on with a pass: the newest that is whole and belongs to it, or {}. No state, of any
        pass, has a higher number."""
        states = self._states()
        number = _number(states[-1]) if states else 0
        for folder in reversed(states):
            try:
                manifest = read_json(folder / "MANIFEST.json", sealed=True)
                if manifest["pass"] != pass_number:
                    continue
                found = {
                    (level, index): tuple(read_array(folder / f"node-{level}-{index}-{k}") for k in range(count))
                    for level, index, count in manifest["nodes"]
                }
            except (StoreError, KeyError, TypeError, ValueError):
                continue
            return number, found
        return number, {}

    def mark_done(self, pass_number: int) -> None:
        with disk_errors("could not keep the sums", self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
        write_json(self.root / "done.json", {"passes": sorted({*self.done(), pass_number})})

    def done(self) -> list[int]:
        try:
            return [int(number) for number in read_json(self.root / "done.json", sealed=True)["passes"]]
        except (StoreError, KeyError, TypeError, ValueError):
            return []

    def drop(self) -> None:
        """Once the result is there."""
        shutil.rmtree(self.root, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what an attempt that died has left."""
        for left in self.root.glob("tmp-*"):
            shutil.rmtree(left, ignore_errors=True)

    def _states(self) -> list[Path]:
        return sorted((folder for folder in self.root.glob("sums-*") if folder.name[5:].isdigit()), key=_number)


def _number(folder: Path) -> int:
    return int(folder.name[5:])

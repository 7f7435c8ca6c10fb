"""Checkpoints of a pass over rows (stores/checkpoint_folder.py).

run/sums/sums-000012/{nodes.0.parts.0, ...} an array a component of a partial sum
                    /MANIFEST.json          the nodes, and which pass it is
         done.json                          passes that have ended (of a Gram matrix that is made row by row)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.checkpoint_folder import CheckpointFolder
from dkl.stores.codec import decode
from dkl.stores.disk import disk_errors
from dkl.stores.registry import Arrays
from dkl.stores.run_identity import KEY, require_identity
from dkl.stores.sealed_json import read_json, write_json

Partials = dict[tuple[int, int], tuple[Any, ...]]
"""Components of a partial sum, by (level, index) of its node in the tree of sums."""


@dataclass(frozen=True)
class NodeSum:
    """Components of the partial sum at a node of the tree of sums."""

    level: int
    index: int
    parts: list[NDArray[np.float64]]


@dataclass(frozen=True)
class PassState:
    """Partial sums of a pass that is under way."""

    number: int
    nodes: list[NodeSum]


class PartialSums(CheckpointFolder):
    """The checkpoints of the passes of one run. arrays: declarations of `sums-*/nodes.*.parts.<k>`, for component k of a sum."""

    def __init__(self, root: Path, arrays: Arrays) -> None:
        super().__init__(root, arrays, "sums", "the sums")

    def save_pass(self, number: int, pass_number: int, partials: Partials) -> None:
        """Commit the state of a pass; `number` grows with each. Raises DiskError."""
        nodes = [NodeSum(level, index, list(parts)) for (level, index), parts in partials.items()]
        self.save(number, PassState(pass_number, nodes))

    def load_pass(self, pass_number: int) -> tuple[int, Partials]:
        """Return (number, state) to resume a pass from: its newest whole state, or {}.

        No state, of any pass, has a higher number.
        """
        number, state = self.load(PassState, lambda state: state.number == pass_number)
        return number, {} if state is None else {(node.level, node.index): tuple(node.parts) for node in state.nodes}

    def mark_done(self, pass_number: int) -> None:
        """Note that a pass has ended and its rows of the Gram matrix are stored. Raises DiskError."""
        with disk_errors(self.failure, self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
        write_json(self.root / "done.json", {"passes": sorted({*self.done(), pass_number}), KEY: self.identity})

    def done(self) -> list[int]:
        """Return the passes that have ended; [] if unknown, so that they are repeated."""
        try:
            notes = read_json(self.root / "done.json", sealed=True)
            require_identity(notes, self.identity, self.root)
            return decode(list[int], {}, notes.get("passes"))
        except StoreError:
            return []

"""State of a pass over rows, stored now and then (stores/kept_states.py).

run/sums/sums-000012/{node-2-3-0, ...}      an array a component of a partial sum
                    /MANIFEST.json          the nodes, and which pass it is
         done.json                          passes that have ended (of a Gram matrix that is made row by row)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dkl.errors import StoreError
from dkl.stores.disk import disk_errors
from dkl.stores.identity import KEY, require_identity
from dkl.stores.kept_states import KeptStates
from dkl.stores.registry import Arrays
from dkl.stores.sealed_json import read_json, write_json

MOST = 1 << 40
"""Upper limit of the level, index and count of a stored node, above any number of groups of rows."""
Partials = dict[tuple[int, int], tuple[Any, ...]]


class PartialSums(KeptStates):
    """The states of the passes of one run. arrays: declarations of `sums-*/node-*-*-<k>`, for component k of a sum."""

    def __init__(self, root: Path, arrays: Arrays) -> None:
        super().__init__(root, arrays, "sums", "the sums")

    def save(self, number: int, pass_number: int, partials: Partials) -> None:
        """Keep the state of a pass, `partials` by (level, index) of their node in the tree of sums; `number` grows with each.

        Raises DiskError.
        """
        arrays = {_name(*node, k): values for node, parts in partials.items() for k, values in enumerate(parts)}
        nodes = [[level, index, len(parts)] for (level, index), parts in partials.items()]
        self.write(number, arrays, {"nodes": nodes, "pass": pass_number})

    def load(self, pass_number: int) -> tuple[int, Partials]:
        """Return (number, state) to resume a pass from: its newest whole state, or {}.

        No state, of any pass, has a higher number.
        """
        number, arrays, notes = self.read(lambda notes: bool(notes["pass"] == pass_number))
        nodes = notes.get("nodes", [])
        if not (isinstance(nodes, list) and all(map(_is_node, nodes))):
            return number, {}
        names = {(level, index): [_name(level, index, k) for k in range(count)] for level, index, count in nodes}
        if {*arrays} != {name for parts in names.values() for name in parts}:
            return number, {}  # damaged, so it counts as not there
        return number, {node: tuple(arrays[name] for name in parts) for node, parts in names.items()}

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
            return [int(number) for number in notes["passes"]]
        except (StoreError, KeyError, TypeError, ValueError, OverflowError):
            return []


def _is_node(node: Any) -> bool:
    """Return whether `node` is [level, index, number of components], each in range."""
    return isinstance(node, list) and len(node) == 3 and all(type(value) is int and 0 <= value < MOST for value in node)


def _name(level: int, index: int, k: int) -> str:
    return f"node-{level}-{index}-{k}"

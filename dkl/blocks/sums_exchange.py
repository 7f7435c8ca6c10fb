"""What the owners of slabs tell each other after a phase, so that each has the sums over all slabs and the rows that hubs need.

Of two owners, or of few numbers, each sends all that it has to all others: one round. Else each adds up one range of the numbers,
which the others send it, and sends the result to all: two rounds, in which each owner sends and holds about twice the vector of sums
instead of once for each other owner. Each number is added along the same tree (linalg/tree_sum.py): the bits are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.tree_sum import Partials, total

WORTHWHILE = 1 << 17
"""Numbers, from which on a second round costs less than more bytes: 1 MB."""
FEW = 2
"""Owners that send no less in two rounds than in one."""


@dataclass
class PhaseSums:
    """An owner's own after a phase: subtree sums, and gathered rows by slab. `step` numbers the phases from 0, the opening."""

    phase: str
    step: int
    partials: Partials
    rows: dict[int, NDArray] = field(default_factory=dict)


@dataclass
class Combined:
    """What all owners have after a phase: the sums over all slabs, read-only, and the gathered rows of all by slab."""

    sums: NDArray[np.float64]
    rows: dict[int, NDArray]


class Peers(Protocol):
    """The other owners; see `dkl.blocks.exchange.Exchange`."""

    index: int
    addresses: list[str]

    def __call__(self, step: int, part: Any) -> list[Any]:
        """The parts of all at this step, in their order."""

    def swap(self, step: int, parts: dict[int, Any]) -> dict[int, Any]:
        """Gives each its own part; what these have given."""


def in_ranges(owners: int, numbers: int) -> bool:
    """Whether so many owners of so many numbers add up a range each."""
    return owners > FEW and numbers >= WORTHWHILE


def alone(part: PhaseSums) -> Combined:
    """Of the only owner."""
    return Combined(total([part.partials]), part.rows)


def combine(peers: Peers, part: PhaseSums) -> Combined:
    """With the other owners, all of which call this with theirs. Raises StateLost where one is lost."""
    size, owners = _size(part.partials), len(peers.addresses)
    if not in_ranges(owners, size):
        parts = peers(2 * part.step, part)
        return Combined(total(each.partials for each in parts), _joined(parts))
    bounds = [k * size // owners for k in range(owners + 1)]

    def piece(k: int) -> PhaseSums:
        cut = {node: vector[bounds[k] : bounds[k + 1]] for node, vector in part.partials.items()}
        return PhaseSums(part.phase, part.step, cut, part.rows)

    given = peers.swap(2 * part.step, {k: piece(k) for k in range(owners) if k != peers.index})
    given[peers.index] = piece(peers.index)
    parts = [given[k] for k in range(owners)]
    return Combined(np.concatenate(peers(2 * part.step + 1, total(each.partials for each in parts))), _joined(parts))


def _size(partials: Partials) -> int:
    return len(next(iter(partials.values())))


def _joined(parts: list[PhaseSums]) -> dict[int, NDArray]:
    return {slab: rows for part in parts for slab, rows in part.rows.items()}

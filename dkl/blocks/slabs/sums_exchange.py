"""Exchange between owners of slabs after a phase: each gets the sums over all slabs and hubs' rows.

Two owners, or any with few numbers, each send all that they have to all others: one round. Otherwise each adds up one range of the
numbers, which the others send it, and sends the result to all: two rounds, in which each owner sends and holds about twice the
vector of sums instead of once for each other owner. Each number is added along the same tree (linalg/rows/tree_sum.py): the bits
are the same.

What follows from the sums by itself for each pattern (the small systems) is shared out too, where there are many: each owner computes
it for one range of the patterns and sends it to all. If each computed all of it, more owners would not make it shorter: on 16 it would
be half of an iteration's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.rows.tree_sum import Partials, total

if TYPE_CHECKING:
    from dkl.blocks.workers.exchange import Exchange

WORTHWHILE = 1 << 17
"""Minimum count of numbers for which another round costs less than more bytes or work: 1 MB."""
FEW = 2
"""Number of owners up to which two rounds send no less than one."""


Empty = Callable[[int], NDArray[np.float64]]
Part = tuple[Partials, dict[int, NDArray]]
"""Sums and rows as they are sent: Dask makes messages of plain containers faster than of our objects."""


@dataclass
class PhaseSums:
    """Subtree sums of one owner after a phase, and gathered rows by slab; `step` counts phases from 0."""

    phase: str
    step: int
    partials: Partials
    rows: dict[int, NDArray] = field(default_factory=dict)


@dataclass
class Combined:
    """Result of a phase on every owner: the sums over all slabs, read-only, and all gathered rows by slab."""

    sums: NDArray[np.float64]
    rows: dict[int, NDArray]


def in_ranges(owners: int, numbers: int) -> bool:
    """Return whether each of `owners` owners adds up one range of a vector of `numbers` numbers."""
    return owners > FEW and numbers >= WORTHWHILE


def worth_sharing(owners: int, numbers: int) -> bool:
    """Return whether `owners` owners share out the computation of `numbers` numbers."""
    return owners > 1 and numbers >= WORTHWHILE


class LocalSums:
    """The only owner, which has all sums."""

    index, owners = 0, 1

    def combine(self, part: PhaseSums, empty: Empty = np.empty) -> Combined:
        """Return the sums and rows of this owner, which are all."""
        return Combined(total([part.partials], empty), part.rows)

    def join(self, step: int, piece: NDArray) -> list[NDArray]:
        """Return the piece of this owner, which is the only one."""
        return [piece]


class AmongOwners:
    """Sums of one of several owners, which all make the same calls in order; StateLost if another is lost."""

    def __init__(self, peers: Exchange) -> None:
        self.peers, self.index, self.owners = peers, peers.index, len(peers.addresses)

    def combine(self, part: PhaseSums, empty: Empty = np.empty) -> Combined:
        """Combine the sums and rows of all owners from each one's.

        empty: makes an uninitialized vector of a length, or hands out one that is there. To allocate 70 MB costs more than to add up
        the sum in it: on workers with 4 GB each, two took 0.3 s at n = 10^6, and 0.01 s once vectors were reused.
        """
        size, owners, peers = _size(part.partials), self.owners, self.peers
        if not in_ranges(owners, size):
            # Three numbers of the exchange belong to a phase, one for each message that it may take: these, `ranges` and `join`.
            parts = peers(3 * part.step, (part.partials, part.rows))
            return Combined(total((sums for sums, _ in parts), empty), _joined(parts))
        # Each owner adds up one range of all vectors, and sends the others its sums: twice the bytes of a vector, not owners times.
        bounds = [k * size // owners for k in range(owners + 1)]

        def piece(k: int) -> Part:
            return {node: vector[bounds[k] : bounds[k + 1]] for node, vector in part.partials.items()}, part.rows

        given = peers.swap(3 * part.step, {k: piece(k) for k in range(owners) if k != self.index})
        given[self.index] = piece(self.index)
        # In the order of owners, not as they came: sums have the same bits every time.
        parts = [given[k] for k in range(owners)]
        ranges = peers(3 * part.step + 1, total(sums for sums, _ in parts))
        return Combined(np.concatenate(ranges, out=empty(size)), _joined(parts))

    def join(self, step: int, piece: NDArray) -> list[NDArray]:
        """Return the pieces of all owners after the phase `step`, in their order."""
        return self.peers(3 * step + 2, piece)


def fill_together(
    among: LocalSums | AmongOwners,
    step: int,
    compute: Callable[[range], None],
    vector: NDArray,
    ends: NDArray[np.int64],
) -> None:
    """Fill `vector` on every owner: compute(items) sets vector[ends[lo] : ends[hi]] for items lo to hi, each by itself.

    Where there are many numbers, each owner computes a range of the items and gets the rest from the others.
    """
    n, mine = len(ends) - 1, among.index
    if not worth_sharing(among.owners, vector.size):
        compute(range(n))
        return
    # Items and not numbers are cut, so that no small system is shared between owners.
    cuts = [k * n // among.owners for k in range(among.owners + 1)]
    spans = [slice(ends[lo], ends[hi]) for lo, hi in pairwise(cuts)]
    compute(range(cuts[mine], cuts[mine + 1]))
    for k, piece in enumerate(among.join(step, vector[spans[mine]])):
        if k != mine:
            vector[spans[k]] = piece


def _size(partials: Partials) -> int:
    return len(next(iter(partials.values())))


def _joined(parts: list[Part]) -> dict[int, NDArray]:
    return {slab: rows for _, gathered in parts for slab, rows in gathered.items()}

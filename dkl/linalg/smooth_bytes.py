"""What the search for the smoothest eigenvectors takes, from shapes alone: plans ask, without what is compiled for the search."""

from __future__ import annotations

from dkl.linalg.ordered_rows import GROUPS
from dkl.linalg.slabs import WIDTH

DENSE = 600
FILL = 2**30
"""Bytes of a factor at most, foreseen: those of a plane of 700,000 rows. Of rows in many dimensions it has 0.9 n^2 entries."""
GAUGES = (2_500, 5_000)
"""Rows of the neighbourhoods by whose factors it is."""
NUMBER = 24
"""Bytes of a number of a factor: its value and its row, in L and in U."""


def guards(count: int) -> int:
    """Columns that are iterated beside those that are asked for: a fifth, and what fills the last slab, which costs nothing."""
    return -(-(count + max(4, count // 5)) // WIDTH) * WIDTH - count


def basis_bytes(n: int, count: int, entries: int, room: int | None = None) -> int:
    """What `smoothest` holds at most beside a Laplacian of so many entries, with what it hands out, where it may take `room`."""
    if n <= max(DENSE, 2 * count):
        return 8 * (3 * n * n + 4 * n * count)
    # Which of the two it is follows from the graph, which a plan does not know.
    factor = factor_room(n, count, entries, room)
    by_factor = factor + _lanczos_bytes(n, count, entries) if factor else 0
    return max(by_factor, filter_bytes(n, count + guards(count), entries) + 2 * 8 * n * count)


def factor_room(n: int, count: int, entries: int, room: int | None) -> int:
    """Bytes that a factor may take of `room`, beside what Lanczos takes; 0 where that is less than those by which it is foreseen."""
    most = min(whole_factor_bytes(n), FILL)
    left = most if room is None else min(most, room - _lanczos_bytes(n, count, entries))
    return left if left >= whole_factor_bytes(min(n, GAUGES[1])) else 0


def whole_factor_bytes(n: int) -> int:
    """Of a factor without any zeros."""
    return NUMBER * n * (n + 1) // 2


def _lanczos_bytes(n: int, count: int, entries: int) -> int:
    return 24 * entries + 8 * n * (2 * max(2 * count + 1, 20) + 3 * count)


def filter_bytes(n: int, columns: int, entries: int) -> int:
    """What a filter holds in one process beside the matrix: the block and its image, two slabs, the rows in their order."""
    return 8 * n * 2 * (columns + WIDTH) + 48 * entries


def owner_bytes(own: int, columns: int, entries: int, halo: int) -> int:
    """The same of an owner of so many rows: that of its block, its slabs with the halo, what of it is sent and comes, its entries."""
    return 8 * (2 * own * columns + 2 * (own + halo) * WIDTH + 4 * halo * WIDTH) + 32 * entries


def most_owner_bytes(n: int, columns: int, entries: int, owners: int) -> int:
    """The same of the largest of so many owners, where each meets all rows of the others."""
    own = min(n, -(-n // owners) + n // GROUPS)
    return owner_bytes(own, columns, entries * own // n, n - own)


def shared_bytes(n: int, count: int, entries: int, owners: int) -> int:
    """What the process holds that owners of rows find eigenvectors for: the block, old and new, what comes of it; a part it sends."""
    return 2 * 8 * n * (count + guards(count)) + 2 * 8 * n * count + 48 * entries // owners

"""Bytes of the search for the smoothest eigenvectors, from shapes alone: without what it compiles."""

from __future__ import annotations

from dkl.linalg.rows.tree_sum import GROUPS
from dkl.linalg.slabs.layout import WIDTH

DENSE = 600
FILL = 2**30
"""Bytes of a factor at most, foreseen: those of a plane of 700,000 rows. Of rows in many dimensions it has 0.9 n^2 entries."""
GAUGES = (2_500, 5_000)
"""Rows of the neighborhoods by whose factors it is."""
NUMBER = 24
"""Bytes of a number of a factor: its value and its row, in L and in U."""


def guards(count: int) -> int:
    """Return the columns iterated in addition to `count`: a fifth, and those that fill the last slab."""
    return -(-(count + max(4, count // 5)) // WIDTH) * WIDTH - count


def basis_bytes(n: int, count: int, entries: int, room: int | None = None) -> int:
    """Return the most bytes that `smoothest` holds if it may take `room`: with its result, without L."""
    if n <= max(DENSE, 2 * count):
        return 8 * (3 * n * n + 4 * n * count)
    # Which of the two it is follows from the graph, which a plan does not know.
    factor = factor_room(n, count, entries, room)
    by_factor = factor + _lanczos_bytes(n, count, entries) if factor else 0
    return max(by_factor, filter_bytes(n, count + guards(count), entries) + 2 * 8 * n * count)


def factor_room(n: int, count: int, entries: int, room: int | None) -> int:
    """Return the bytes of `room` that Lanczos leaves to a factor, or 0 if its gauges need more."""
    most = min(whole_factor_bytes(n), FILL)
    left = most if room is None else min(most, room - _lanczos_bytes(n, count, entries))
    return left if left >= whole_factor_bytes(min(n, GAUGES[1])) else 0


def whole_factor_bytes(n: int) -> int:
    """Return the bytes of a factor without any zeros."""
    return NUMBER * n * (n + 1) // 2


def _lanczos_bytes(n: int, count: int, entries: int) -> int:
    return 24 * entries + 8 * n * (2 * max(2 * count + 1, 20) + 3 * count)


def filter_bytes(n: int, columns: int, entries: int) -> int:
    """Return a filter's bytes in one process, without the matrix: block, image, two slabs, ordered rows."""
    return 8 * n * 2 * (columns + WIDTH) + 48 * entries


def owner_bytes(own: int, columns: int, entries: int, halo: int) -> int:
    """Return an owner's bytes in a filter: block, slabs with the halo, rows sent and received, entries."""
    return 8 * (2 * own * columns + 2 * (own + halo) * WIDTH + 4 * halo * WIDTH) + 32 * entries


def most_owner_bytes(n: int, columns: int, entries: int, owners: int) -> int:
    """Return the bytes of the largest of `owners` owners, where each meets all rows of the others."""
    own = min(n, -(-n // owners) + n // GROUPS)
    return owner_bytes(own, columns, entries * own // n, n - own)


def shared_bytes(n: int, count: int, entries: int, owners: int) -> int:
    """Return the bytes of the owners' client: the block, old and new, what comes of it, a part it sends."""
    return 2 * 8 * n * (count + guards(count)) + 2 * 8 * n * count + 48 * entries // owners

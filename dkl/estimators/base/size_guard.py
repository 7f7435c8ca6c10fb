"""Refusal of in-process work that exceeds available memory, before it starts."""

from __future__ import annotations

from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import PROCESS_BASE, Plan
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory

MOST_ROWS = 5000
"""Maximum rows whose kernel matrix is decomposed whole; of more, the rows with side information are."""
SQUARES = 3
"""n x n arrays alive while a Laplacian is inverted, or a given matrix is checked."""


def check_size(items: dict[str, int], limit: int | None, remedy: str) -> None:
    """Raise MemoryBudgetError if the arrays, bytes by name, together exceed `limit` or machine memory."""
    allowed = Place(1, 1).allowed(limit) or int(MEMORY_SHARE * machine_memory())
    Plan("memory", 1, 1, PROCESS_BASE, items, {}, allowed, remedy=remedy).validate()

"""Layout of factors of problem (1): width of their slabs, and groups of rows that are added up apart."""

from __future__ import annotations

from dkl.linalg.rows.ordered_rows import row_groups

LEAST_ROWS = 2048
"""Least number of rows of a group whose sums are added up apart."""
MANY_ROWS = 4096
"""Number of rows from which on slabs have widths between powers of two as well."""


def groups(n: int) -> list[tuple[int, int]]:
    """Return (first row, last row + 1) of the groups of n rows whose sums are added up apart."""
    return row_groups(n, LEAST_ROWS)


def padded_width(n: int, rank: int) -> int:
    """Return the slab's columns of a factor (n, rank): 4, 8, 16, 24, 32, 48, ...; few rows: powers of two.

    A pass takes as long as its columns: at n = 7,494, 24 columns three quarters of 32. But kernels compile for each width, once
    for two seconds, which few rows do not repay; below 24, where a row is a cache line or two, little is won.
    """
    width = 4
    while width < rank:
        width *= 2
    between = 3 * width // 4
    return between if width > 16 and rank <= between and n >= MANY_ROWS else width

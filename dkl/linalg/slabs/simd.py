"""Row operations that every slab kernel is made of, by name; `simd_code.py` has their code, and imports Numba.

The width of a slab is part of the type: kernels take `lanes`, a tuple of w zeros, and compile once for each width and dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dkl.linalg.late_functions import LateFunction


def lanes_of(width: int) -> tuple[int, ...]:
    """Return the width of a slab as kernels take it: `width` zeros, whose number is in its numba type."""
    return (0,) * width


def _code(name: str) -> Callable[..., Any]:
    """Return the operation `name`, which compiled functions alone can call."""
    from dkl.linalg.slabs import simd_code

    return getattr(simd_code, name)


put_sparse_row, add_sparse_row, combine_rows, row_dot, crossed_dot = (
    LateFunction(partial(_code, name), __name__, name)
    for name in ("put_sparse_row", "add_sparse_row", "combine_rows", "row_dot", "crossed_dot")
)

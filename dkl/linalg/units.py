"""Units by which numbers are scaled without rounding."""

from __future__ import annotations

import math


def power_of_two(size: float) -> float:
    """Return the largest power of two that is at most `size`; 1 where `size` is 0 or not finite.

    >>> power_of_two(5.0), power_of_two(0.3), power_of_two(0.0)
    (4.0, 0.25, 1.0)
    """
    return math.ldexp(1.0, math.frexp(size)[1] - 1) if 0.0 < size < math.inf else 1.0

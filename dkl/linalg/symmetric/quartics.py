"""The least value of a quartic on a line, exact but for rounding."""

from __future__ import annotations

import numpy as np


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def lowest_of_quartic(c1: float, c2: float, c3: float, c4: float) -> tuple[float, float]:
    """Return (t, value) of the least c1 t + c2 t^2 + c3 t^3 + c4 t^4: the best real root of its slope.

    (0, 0) without a real root. Leading coefficients so small that roots are beyond double precision count as 0.

    >>> lowest_of_quartic(-2.0, 1.0, 0.0, 0.0)
    (1.0, -1.0)
    >>> lowest_of_quartic(-2.0, 1.0, 0.0, 1e-310)[1]
    -1.0
    """
    slope = np.array([4 * c4, 3 * c3, 2 * c2, c1])
    while slope.size > 1 and not np.isfinite(slope / slope[0]).all():
        slope = slope[1:]
    roots = np.roots(slope)
    # A double root may come out as a complex pair, its imaginary part rounding.
    real = roots.real[np.abs(roots.imag) <= 1e-8 * np.abs(roots)]
    values = real * (c1 + real * (c2 + real * (c3 + real * c4)))
    real, values = real[np.isfinite(values)], values[np.isfinite(values)]
    if real.size == 0:
        return 0.0, 0.0
    best = int(np.argmin(values))
    return float(real[best]), float(values[best])

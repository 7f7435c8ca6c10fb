"""Warnings at the end of a fit, the same for all learners."""

from __future__ import annotations

import warnings

from dkl.errors import ConvergenceWarning, DataWarning
from dkl.quality import Quality
from dkl.solvers.result import Result


def warn_of(result: Result, *, stacklevel: int, more: str = "") -> None:
    """Warn that a fit did not converge, with the remedy, unless a callback asked for the end.

    stacklevel: as in `warnings.warn`, from the caller of this function; more: figures to add.
    """
    if not result.outcome.is_wanted:
        text = f"not converged ({result.outcome.value}): {result.remedy}" + (f" ({more})" if more else "")
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)


def warn_if_worse(quality: Quality | None, *, stacklevel: int) -> None:
    """Warn where the plainest alternative is better on held-out data. stacklevel: as in `warn_of`."""
    if quality is not None and quality.is_worse:
        warnings.warn(quality.warning, DataWarning, stacklevel=stacklevel + 1)

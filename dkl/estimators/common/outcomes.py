"""How a fit that did not converge is told: one warning for all learners."""

from __future__ import annotations

import warnings

from dkl.errors import ConvergenceWarning
from dkl.solvers.result import Result


def warn_of(result: Result, *, stacklevel: int, more: str = "") -> None:
    """A ConvergenceWarning with the remedy, unless the result converged or a callback asked for the end.

    stacklevel: as in `warnings.warn`, from the caller of this function; more: figures to add.
    """
    if not result.outcome.is_wanted:
        text = f"not converged ({result.outcome.value}): {result.remedy}" + (f" ({more})" if more else "")
        warnings.warn(text, ConvergenceWarning, stacklevel=stacklevel + 1)

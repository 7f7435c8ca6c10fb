"""Every error and warning that `dkl` raises on purpose, with the exit status the command line gives it.

A message says, on one line: what is wrong, where, what was got, what was wanted and how to mend it.
Anything else that escapes is a bug of ours (exit status 1).
"""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import ConvergenceWarning as ConvergenceWarning


class DklError(Exception):
    """Root of the family. `exit_status` is what the `dkl` command returns for it."""

    exit_status = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: Any = None,
        wanted: Any = None,
        mend: str | None = None,
    ) -> None:
        self.what, self.where, self.got, self.wanted, self.mend = what, where, got, wanted, mend
        parts = [f"{where}: {what}" if where else what]
        if got is not None:
            parts.append(f"got {got}")
        if wanted is not None:
            parts.append(f"wanted {wanted}")
        if mend is not None:
            parts.append(mend)
        super().__init__("; ".join(" ".join(str(part).split()) for part in parts))

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default pickling, and errors cross process borders here.
        keywords = {"where": self.where, "got": self.got, "wanted": self.wanted, "mend": self.mend}
        return _rebuild, (type(self), self.what, keywords)


def _rebuild(kind: type[DklError], what: str, keywords: dict[str, Any]) -> DklError:
    return kind(what, **keywords)


class InputError(DklError, ValueError):
    """A malformed argument, array, file or option; raised before any work and before anything is written."""

    exit_status = 2


class InputTypeError(InputError, TypeError):
    """An input of a type that holds no numbers at all; a TypeError too, as scikit-learn's contract asks."""


class InconsistentPairsError(InputError):
    """Must-link and cannot-link pairs that contradict each other, directly or through must-link closure."""


class NumericalError(DklError, FloatingPointError):
    """A value stopped being finite on the way."""

    exit_status = 3


class InterruptedRunError(DklError):
    """The run stopped before its end and can be resumed from its last commit."""

    exit_status = 4


class ResourceError(DklError):
    """Not enough memory, disk or workers for the work as it was asked for."""

    exit_status = 5


class MemoryBudgetError(ResourceError):
    """The plan needs more memory than the limit allows; raised before any data is read."""


class DiskError(ResourceError):
    """The disk is full, or not writable, or what was written did not all arrive."""


class WorkersLostError(ResourceError):
    """Workers died, or never came, more often than the run may restart."""


class StoreError(DklError):
    """A store that is damaged, half written, foreign, or of a version that is not understood."""

    exit_status = 6


class SizeWarning(UserWarning):
    """The work will run, but something about its size deserves to be known."""


class DataWarning(UserWarning):
    """The data is usable, but something about it (a disconnected graph, isolated patterns) deserves to be known."""

"""Every error and warning that `dkl` raises on purpose, with the exit status the command line gives it.

A message says, on one line: what is wrong, where, what was got, what was wanted and what to do about it.
Anything else that escapes is a bug of ours (exit status 1).

`ConvergenceWarning` is scikit-learn's own class, imported when it is first asked for: a caller that only catches errors
does not wait for scikit-learn.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sklearn.exceptions import ConvergenceWarning as ConvergenceWarning


def __getattr__(name: str) -> Any:
    if name != "ConvergenceWarning":
        raise AttributeError(f"module 'dkl.errors' has no attribute {name!r}")
    from sklearn.exceptions import ConvergenceWarning

    return ConvergenceWarning


class DklError(Exception):
    """Root of the family: every error that `dkl` raises on purpose.

    what, where, got, wanted, remedy: the parts of the message, and attributes; all but the first may be None.
    exit_status: what the `dkl` command returns for it.

    >>> raise DklError("not a rank", where="rank", got=0, wanted="1 or more", remedy="leave it out")
    Traceback (most recent call last):
    dkl.errors.DklError: rank: not a rank; got 0; wanted 1 or more; leave it out
    """

    exit_status = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: Any = None,
        wanted: Any = None,
        remedy: str | None = None,
    ) -> None:
        self.what, self.where, self.got, self.wanted, self.remedy = what, where, got, wanted, remedy
        parts = [f"{printable(str(where))}: {what}" if where else what]
        if got is not None:
            parts.append(f"got {got}")
        if wanted is not None:
            parts.append(f"wanted {wanted}")
        if remedy is not None:
            parts.append(remedy)
        # One line, whatever a library put into `got` or a file is called: logs and the command line print errors by lines.
        super().__init__(printable("; ".join(" ".join(str(part).split()) for part in parts)))

    def named(self, old: str, new: str) -> DklError:
        """Return the same error with `old` replaced by `new`, the name that the user knows a thing by."""
        parts = (self.where, self.got, self.wanted, self.remedy)
        where, got, wanted, remedy = (part.replace(old, new) if isinstance(part, str) else part for part in parts)
        return type(self)(self.what, where=where, got=got, wanted=wanted, remedy=remedy)

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default pickling, and errors cross process borders here.
        keywords = {"where": self.where, "got": self.got, "wanted": self.wanted, "remedy": self.remedy}
        return _rebuild, (type(self), self.what, keywords)


def _rebuild(kind: type[DklError], what: str, keywords: dict[str, Any]) -> DklError:
    return kind(what, **keywords)


class InputError(DklError, ValueError):
    """A malformed argument, array, file or option; raised before any work and before anything is written. Exit status 2."""

    exit_status = 2


class InputTypeError(InputError, TypeError):
    """An input of a type that holds no numbers at all; a TypeError too, as scikit-learn's contract asks."""


class InconsistentPairsError(InputError):
    """Must-link and cannot-link pairs that contradict each other, directly or through must-link closure."""


class NumericalError(DklError, FloatingPointError):
    """A value stopped being finite on the way. Exit status 3."""

    exit_status = 3


class InterruptedRunError(DklError):
    """The run stopped before its end and can be resumed from its last commit. Exit status 4."""

    exit_status = 4


class ResourceError(DklError):
    """Not enough memory, disk or workers for the work as requested. Exit status 5."""

    exit_status = 5


class MemoryBudgetError(ResourceError):
    """The plan needs more memory than the limit allows; raised before any data is read."""


class DiskError(ResourceError):
    """The disk is full, or not writable, or what was read back is not what was written."""


class WorkersLostError(ResourceError):
    """Workers died, or never came, more often than a run may be restarted."""


class StateLost(RuntimeError):
    """Part of a distributed state went with a worker; it must be rebuilt from the last commit. Caught within `dkl`."""


class StoreError(DklError):
    """A store that is damaged, half written, foreign, or of a version that is not understood. Exit status 6."""

    exit_status = 6


class DataWarning(UserWarning):
    """The data is usable, but not quite what it should be: a disconnected graph, isolated patterns, a low recall."""


# -- text for terminals ------------------------------------------------------------------------------------------------
# Text as a terminal may show it: control characters of file names, class names and columns are written as escapes.

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters but for tabs and line feeds, marks that turn the direction of text, and bytes that are no text."""
_IN_LINES, _IN_A_LINE = re.compile(f"[{_CONTROL}]"), re.compile(rf"[\t\n{_CONTROL}]")


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return text with its control characters escaped as Python writes them; `lines`: but for tabs and ends of lines.

    >>> print(printable("a\x1b[2J\n.csv"))
    a\x1b[2J\n.csv
    """
    return (_IN_LINES if lines else _IN_A_LINE).sub(lambda found: found[0].encode("unicode_escape").decode(), text)

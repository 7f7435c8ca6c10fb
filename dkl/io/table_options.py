"""Options of reading delimited text. Imports nothing large: commands take them before any work."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class TableOptions:
    """Options of reading delimited text; what is None is decided by the file, or refused where two readings are possible.

    header: whether the first line holds names of columns. delimiter: between cells. decimal: "," or ".", in numbers. features: columns
    to learn from, in this order; None: all that are not otherwise used. drop: columns to leave out. target_column: the column to
    learn. id_column: the column of the rows' ids. Columns are given by name, or by number from 1.
    """

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    target_column: str | None = None
    id_column: str | None = None
    like_before: bool = False
    """True for new rows where those learned from were a table: their names, if any, were text, and no column was taken for ids."""
    may_lack: bool = False
    """True where columns to leave out, of targets or of ids may be absent, as in new rows."""
    takes_targets: bool = True
    """True if a column can be named as targets; remedies name only options that exist."""

    def as_dict(self) -> dict[str, object]:
        """Return what differs from the defaults, as JSON keeps it."""
        default = TableOptions()
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != getattr(default, name) and name not in ("may_lack", "like_before", "takes_targets")
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> TableOptions:
        """Return the options that `as_dict` has kept; TypeError for anything else."""
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        for name, value in found.items():
            is_right = isinstance(value, bool) if name == "header" else all(isinstance(each, str) for each in value)
            if not is_right or isinstance(value, tuple) != (name in ("features", "drop")) or isinstance(value, dict):
                raise TypeError(f"{name}: {value!r}")
        return cls(**found)

    def for_new_rows(self, given: TableOptions) -> TableOptions:
        """Return the options for other rows than those learned from: `given`, else the same; columns that are not needed may lack."""
        chosen = {
            field.name: getattr(given, field.name)
            for field in fields(self)
            if getattr(given, field.name) != field.default
        }
        return replace(self, **{**chosen, "may_lack": True})

    def for_targets(self) -> TableOptions:
        """Return the options for a separate file of targets, which has other columns."""
        return replace(self, features=None, drop=(), id_column=None)

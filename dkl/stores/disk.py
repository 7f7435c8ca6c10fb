"""What the system says when it cannot write, as our error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkl.errors import DiskError


@contextmanager
def disk_errors(what: str, path: Path | str) -> Iterator[None]:
    """Errors of the system as DiskErrors that name the path."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"{what} ({error.strerror})", where=str(path), mend="free space on that disk, then `dkl resume` the run"
        ) from error

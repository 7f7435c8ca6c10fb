"""What a run is beyond its folder: its name, and where its commits go if it is in an object store (stores/object_runs.py)."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkl.errors import DiskError, DklError, ResourceError
from dkl.stores.object_runs import ObjectRun


class Published:
    """A folder that an attempt works in, and of a run in an object store the commits of it."""

    def __init__(self, path: Path, attempt: str, objects: ObjectRun | None) -> None:
        self.path, self.attempt, self.objects = path, attempt, objects

    @property
    def name(self) -> str:
        """Where the user knows it to be: its folder, or its address in an object store."""
        return str(self.path if self.objects is None else self.objects)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Errors that tell of the run's folder tell of its address, where it has one."""
        try:
            yield
        except DklError as error:
            if self.objects is None:
                raise
            raise error.named(str(self.path), self.name).with_traceback(error.__traceback__) from error.__cause__

    def publish(self) -> None:
        """Commit what the folder holds to the object store that the run is in, if it is in one.

        InputError where somebody else works on it too; ResourceError where the store cannot be reached.
        """
        if self.objects is not None:
            self.objects.publish(self.path, self.attempt)

    def publish_if_reachable(self) -> None:
        """As `publish`, in the midst of a fit: while the store cannot be reached a warning, and the next commit has it all."""
        try:
            self.publish()
        except DiskError:
            raise
        except ResourceError as error:
            warnings.warn(f"not committed yet, the fit goes on: {error}", RuntimeWarning, stacklevel=2)

    def take_over(self) -> None:
        """Of a run in an object store, and under the lock: whoever worked on it before fails at its next commit."""
        if self.objects is not None:
            self.objects.publish(self.path, self.attempt, always=True)
            self.objects.remove_leftovers()

    def remove(self) -> None:
        """All of a run that was made just now, by us."""
        shutil.rmtree(self.path)
        if self.objects is not None:
            self.objects.remove()

"""The parts of a run's folder: small arrays by name, and the seals by which damage to any part is found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores import commits, seals
from dkl.stores.arrays import declaration_of, read_array, write_array
from dkl.stores.object_runs import ObjectRun
from dkl.stores.registry import Arrays, arrays_of
from dkl.stores.remote import Published
from dkl.stores.run_identity import identity_of, require_identity
from dkl.stores.sealed_json import read_json

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

STATE = re.compile(r"[a-z]+[0-9]*-[0-9]{6,}")
"""Pattern of the names of folders of states."""


class RunParts(Published):
    """A folder with a configuration, whose parts are sealed."""

    def __init__(self, path: Path, attempt: str, config: Json, objects: ObjectRun | None) -> None:
        super().__init__(path, attempt, objects)
        self.config, self.identity = config, identity_of(config)

    @property
    def arrays(self) -> Arrays | None:
        """Return the arrays that this run's learner declares; None for an unknown learner."""
        return arrays_of(self.config.get("task"))

    @property
    def is_complete(self) -> bool:
        """Return whether the run is complete: it has a report, which is written last."""
        return (self.path / "report.json").is_file()

    def seal_part(self, part: str) -> None:
        """Seal a part whose files are all written. Raises DiskError."""
        seals.seal_folder(self.path / part, part)

    def check_part(self, part: str, *, whole: bool = False) -> None:
        """Raise StoreError where files of a part are gone, cut short, misplaced or another run's.

        whole: all bytes are read.
        """
        seals.check_folder(self.path / part, part, whole=whole)

    def require_own_parts(self) -> None:
        """Raise StoreError for the first part or state of another run. Damaged manifests are left to the readers of their parts."""
        for pattern in ("*", "*/*"):
            for manifest in sorted(self.path.glob(f"{pattern}/{seals.MANIFEST}")):
                try:
                    content = read_json(manifest, sealed=True)
                except StoreError:
                    continue
                require_identity(content, self.identity, manifest.parent)

    def damaged_states(self) -> list[StoreError]:
        """Return the errors of kept states of work under way, by names, sizes and seals of their files.

        A resumed run passes these states over.
        """
        found = []
        for folder in sorted(path for path in self.path.glob("*/*-*") if STATE.fullmatch(path.name)):
            try:
                content = read_json(folder / seals.MANIFEST, sealed=True)
                require_identity(content, self.identity, folder)
                seals.check_files(folder, seals.files_of(content, folder))
            except StoreError as damage:
                found.append(damage)
        return found

    def write_arrays(self, folder: str, arrays: dict[str, NDArray]) -> None:
        """Write small arrays under `folder`, replacing any there; all of them are written or none.

        Raises DiskError, and StoreError for an array that is not declared, or not as it is declared.
        """
        with commits.replaced_folder(self.path / folder, "could not be written", self.attempt) as partial:
            for name, values in arrays.items():
                write_array(partial / name, values, declaration_of(self.arrays, f"{folder}/{name}", self.path))
            seals.seal_folder(partial, folder)
        self.publish_if_reachable()

    def read_array(self, name: str) -> NDArray:
        """Return the array "folder/name" alone, without those next to it. Raises StoreError."""
        return read_array(self.path / name, declaration_of(self.arrays, name, self.path))

    def read_arrays(self, folder: str) -> dict[str, NDArray]:
        """Return the arrays that `write_arrays` wrote under `folder`, by name.

        Raises StoreError where there is nothing, where an array is missing that every such run has, for one that is not
        declared and for one that is not what was written.
        """
        target = self.path / folder
        if not target.is_dir():
            raise StoreError(f"this run has no {folder}", where=str(self.path), remedy="`dkl resume` it first")
        names = sorted(path.name for path in target.iterdir() if path.is_dir())
        declared = {name: declaration_of(self.arrays, f"{folder}/{name}", self.path) for name in names}
        for one in (self.arrays or Arrays()).inside(folder):
            if one.name not in declared and not one.optional:
                raise StoreError(f"no {one.name} in it", where=str(target), got=", ".join(names))
        found = {name: read_array(target / name, one) for name, one in declared.items()}
        self.check_part(folder)  # last: what is not as declared has said so by now
        return found

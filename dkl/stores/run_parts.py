"""The parts of a run's folder: small arrays by name, pairs, factor and lifts, and the seals by which damage to any part is found."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores import folders, seals
from dkl.stores.arrays import create_array, declaration_of, open_array, read_array, rows_per_chunk, write_array
from dkl.stores.folders import disk_errors, fsync_tree
from dkl.stores.object_runs import ObjectRun
from dkl.stores.registry import FLOATS, INTEGERS, ROWS, Arrays, StoredArray, arrays_of
from dkl.stores.remote import Published
from dkl.stores.seals import identity_of, read_json, require_identity

if TYPE_CHECKING:
    import zarr
    from numpy.typing import DTypeLike

    from dkl.stores.seals import Json


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
                    # Its own reader says what is wrong with it.
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
        with folders.replaced_folder(self.path / folder, "could not be written", self.attempt) as partial:
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


MUST_LINK = StoredArray("pairs/must_link", ("pair", "end"), INTEGERS, "Row numbers of pairs that belong together.")
CANNOT_LINK = MUST_LINK.at("pairs/cannot_link", "Row numbers of pairs that belong apart.")
PAIR_WEIGHTS = StoredArray(
    "pairs/weights", ("pair",), ("float64",), "Weights of the must-links and then of the cannot-links, > 0; none: all 1.",
    optional=True,
)  # fmt: skip
FACTOR = StoredArray("factor", ("sample", "rank"), FLOATS, "The result V: K = V V'.", chunks=ROWS)
LIFT = StoredArray(
    "lift",
    ("sample",),
    ("float64",),
    "What the certificate adds to the gradient's diagonal (problems/pairwise/certificate.py).",
)
PAIR_LIFT = StoredArray(
    "pair_lift", ("pair",), ("float64",),
    "What the certificate adds to the gradient's entries (i, j) and (j, i) of each pair i < j, by rows; none: nothing.",
    optional=True,
)  # fmt: skip


class PairParts(RunParts):
    """Pairs, factor and lifts in the folder of a run."""

    def write_pairs(
        self,
        must_link: NDArray[np.int64],
        cannot_link: NDArray[np.int64],
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        """Keep pairs of row numbers, (m, 2) each, and their weights (both m's,), in place of any that are there. Raises DiskError."""
        (self.path / "pairs").mkdir(mode=0o700, exist_ok=True)
        for declared, pairs in ((MUST_LINK, must_link), (CANNOT_LINK, cannot_link)):
            target = self.path / declared.path
            shutil.rmtree(target, ignore_errors=True)
            write_array(target, pairs.astype(np.int64), declared, attributes={"count": len(pairs)})
        shutil.rmtree(self.path / PAIR_WEIGHTS.path, ignore_errors=True)
        if weights is not None:
            write_array(self.path / PAIR_WEIGHTS.path, weights, PAIR_WEIGHTS)
        self.seal_part("pairs")

    def read_pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Read (must-link, cannot-link) pairs of row numbers, (m, 2) each. Raises StoreError."""
        self.check_part("pairs")
        must_link, cannot_link = (read_array(self.path / one.path, one) for one in (MUST_LINK, CANNOT_LINK))
        return must_link, cannot_link

    def read_pair_weights(self) -> NDArray[np.float64] | None:
        """Read (m,) weights of the pairs, must-links first; None where all are 1. Raises StoreError."""
        self.check_part("pairs")
        target = self.path / PAIR_WEIGHTS.path
        return read_array(target, PAIR_WEIGHTS) if target.is_dir() else None

    def write_lifts(self, lift: NDArray[np.float64], pair_lift: NDArray[np.float64] | None) -> None:
        """Keep a certificate's lifts, (n,) and (pairs,) by rows, in place of any that are there. Raises DiskError."""
        for declared, values in ((LIFT, lift), (PAIR_LIFT, pair_lift)):
            shutil.rmtree(self.path / declared.path, ignore_errors=True)
            # A lift of pairs that is 0 throughout is not stored: `pair_lift` reads the absence as that.
            if values is not None and (declared is LIFT or values.any()):
                write_array(self.path / declared.path, values, declared)
                self.seal_part(declared.path)

    def lift(self) -> NDArray[np.float64]:
        """Return the certificate's lift (n,) that `write_lifts` wrote. Raises StoreError."""
        self.check_part(LIFT.path)
        return read_array(self.path / LIFT.path, LIFT)

    def pair_lift(self) -> NDArray[np.float64]:
        """Return the certificate's lift of pairs, (pairs,), or (0,) if none was written. Raises StoreError."""
        if not (self.path / PAIR_LIFT.path).is_dir():
            return np.zeros(0)
        self.check_part(PAIR_LIFT.path)
        return read_array(self.path / PAIR_LIFT.path, PAIR_LIFT)

    def create_factor(self, n: int, rank: int, dtype: DTypeLike) -> int:
        """Create a result (n, rank) without values, in chunks of whole rows; return the rows of a chunk.

        Raises DiskError.

        Any earlier one goes, its report first: a run with a report has a result.
        """
        rows = rows_per_chunk(n, rank, dtype)
        with disk_errors("could not write the result", self.path / "factor"):
            # First, and on disk before the factor goes: a report says that the result next to it is whole.
            (self.path / "report.json").unlink(missing_ok=True)
            fsync_tree(self.path, deep=False)
            shutil.rmtree(self.path / FACTOR.path, ignore_errors=True)
            create_array(self.path / FACTOR.path, FACTOR, (n, rank), dtype, rows=rows)
        return rows

    def write_factor(self, factor: NDArray) -> None:
        """Write a factor (n, rank) in memory as the run's result. Raises DiskError."""
        rows = self.create_factor(len(factor), factor.shape[1], factor.dtype)
        for lo in range(0, len(factor), rows):
            write_factor_rows(str(self.path / FACTOR.path), lo, factor[lo : lo + rows])
        self.seal_part(FACTOR.path)

    def factor(self) -> zarr.Array:
        """Open the result as a zarr array (n, rank), read-only.

        Its files are compared with their seal here, and a chunk's bytes with its checksum when they are read. Raises StoreError
        where there is no result, or it is not a factor.
        """
        if not (self.path / FACTOR.path / "zarr.json").is_file():
            raise StoreError("this run has no result yet", where=str(self.path), remedy="`dkl resume` it first")
        self.check_part(FACTOR.path)
        return open_array(self.path / FACTOR.path, FACTOR)


def write_factor_rows(path: str, lo: int, values: NDArray) -> None:
    """Store whole chunks of rows of a result, values (rows, rank), from row lo on. Raises DiskError, StoreError."""
    array = open_array(Path(path), FACTOR, mode="r+")
    with disk_errors("could not write the result", path):
        array[lo : lo + len(values)] = values

"""Parts of a run of pairs: the pairs that it learns from, its factor, and the certificate's lifts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.arrays import create_array, open_array, read_array, rows_per_chunk, write_array
from dkl.stores.commits import fsync_tree
from dkl.stores.disk import disk_errors
from dkl.stores.registry import FLOATS, INTEGERS, ROWS, StoredArray
from dkl.stores.run_parts import RunParts

if TYPE_CHECKING:
    import zarr
    from numpy.typing import DTypeLike

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
            (self.path / "report.json").unlink(missing_ok=True)
            fsync_tree(self.path, deep=False)
            shutil.rmtree(self.path / FACTOR.path, ignore_errors=True)
            create_array(self.path / FACTOR.path, FACTOR, (n, rank), dtype, rows=rows)
        return rows

    def factor(self) -> zarr.Array:
        """Open the result as a zarr array (n, rank), read-only.

        Each chunk is the one that was written there.

        A chunk's bytes are compared with its checksum when they are read. Raises StoreError where it is not there, or not
        a factor.
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

"""Results out of slabs: from columns on disk to rows on disk, a few chunks of rows at a time, spread over the workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.errors import StoreError
from dkl.stores.generations import Generation
from dkl.stores.run import RunStore
from dkl.stores.run_parts import write_factor_rows
from dkl.stores.slab_arrays import SlabArray


def export_factor(session: Session, run: RunStore, generation: Generation, name: str, rank: int, scale: float) -> None:
    """Write scale * (committed array `name`) as the run's factor, (n, rank) in chunks of rows, by the session's workers.

    Raises StoreError where a slab is not the one that was committed, and DiskError.
    """
    source = SlabArray.open(generation.folder / name)
    rows = run.create_factor(source.n, rank, source.dtype)
    slots = session.n_slots  # asked once: where workers join meanwhile, parts cut by two numbers would leave rows out
    # Its checksums first: rows are read out of the middle of slabs.
    slabs = [range(k, source.n_slabs, slots) for k in range(min(slots, source.n_slabs))]
    session.map(_check_slabs, slabs, str(generation.folder), name, generation.files)
    starts = list(range(0, source.n, rows))
    pieces = [starts[k::slots] for k in range(min(slots, len(starts)))]
    session.map(_copy_rows, pieces, str(generation.folder / name), str(run.path / "factor"), rows, rank, scale)
    run.seal_part("factor")


def exported_columns(generation: Generation, name: str, rank: int, scale: float) -> Iterator[NDArray]:
    """Yield the columns (n, few) of what `export_factor` writes, to the bit, slab by slab.

    Raises StoreError.
    """
    source = SlabArray.open(generation.folder / name)
    block = np.empty((source.n, source.width), source.dtype)
    for slab in range(source.n_slabs):
        _read_committed(source, slab, block, generation.folder, generation.files)
        # In the array's type: by NumPy 2 a float64 scalar makes the product double, with other bits.
        yield block[:, : rank - slab * source.width] * source.dtype.type(scale)


def _check_slabs(slabs: range, folder: str, name: str, files: dict[str, tuple[int, int]]) -> None:
    source = SlabArray.open(Path(folder) / name)
    block = np.empty((source.n, source.width), source.dtype)
    for slab in slabs:
        _read_committed(source, slab, block, Path(folder), files)


def _read_committed(
    source: SlabArray, slab: int, block: NDArray, folder: Path, files: dict[str, tuple[int, int]]
) -> None:
    """Read a slab into `block`; StoreError where it is not the one of the manifest."""
    if source.read(slab, block) != files[str(source.chunk(slab).relative_to(folder))][1]:
        raise StoreError("a slab is not the one that was committed", where=str(source.chunk(slab)))


def _copy_rows(starts: list[int], source_path: str, target: str, rows: int, rank: int, scale: float) -> None:
    source = SlabArray.open(Path(source_path))
    block = np.empty((rows, source.width), source.dtype)
    for lo in starts:
        hi = min(lo + rows, source.n)
        out = np.empty((hi - lo, rank), source.dtype)
        for slab in range(source.n_slabs):
            first = slab * source.width
            last = min(first + source.width, rank)
            source.read_rows(slab, lo, hi, block[: hi - lo])
            out[:, first:last] = block[: hi - lo, : last - first]
        out *= source.dtype.type(scale)
        write_factor_rows(target, lo, out)


def as_dask(run: RunStore) -> Any:
    """Return the committed, unchanging result (n, rank) as a dask array. Raises StoreError."""
    return lazy(run.factor())


def lazy(stored: Any) -> Any:
    """Return an array, in memory or in a store, as a dask array of the store's chunks."""
    import dask.array as da

    return da.from_array(stored, chunks=getattr(stored, "chunks", stored.shape))


def compressed(run: RunStore, max_rank: int) -> NDArray[np.float64]:
    """Return V Q, the stored factor's leading principal columns, V'V = Q diag Q', at most `max_rank`.

    Those of a variance below 1e-8 of the largest are left out. Raises StoreError.
    """
    factor = run.factor()
    n, rank = factor.shape
    rows = factor.chunks[0]
    gram = np.zeros((rank, rank))
    for lo in range(0, n, rows):
        part = np.asarray(factor[lo : lo + rows], dtype=float)
        gram += part.T @ part
    # Of V'V (r, r): two passes over the rows on disk, and never more than a chunk of them in memory.
    values, vectors = np.linalg.eigh(gram)
    keep = np.flatnonzero(values > 1e-8 * values[-1])[::-1][:max_rank]
    basis = vectors[:, keep]
    return np.concatenate([np.asarray(factor[lo : lo + rows], dtype=float) @ basis for lo in range(0, n, rows)])

"""The arrays that a run of pairs holds."""

from __future__ import annotations

from dkl.stores.graph import DATA, INDICES, INDPTR
from dkl.stores.registry import Arrays
from dkl.stores.run import CANNOT_LINK, FACTOR, LIFT, MUST_LINK, PAIR_WEIGHTS
from dkl.stores.slab_arrays import COMMITTED, WORKING

ARRAYS = Arrays(
    DATA,
    INDICES,
    INDPTR,
    MUST_LINK,
    CANNOT_LINK,
    PAIR_WEIGHTS,
    COMMITTED.at("generations/gen-*/V", "V of problem (5) in problems/pairwise_admm.py."),
    COMMITTED.at("generations/gen-*/U", "U; the result is a multiple of it."),
    COMMITTED.at("generations/gen-*/Lambda", "The multiplier of V = U."),
    WORKING,
    FACTOR,
    LIFT,
    files={
        "graph/zarr.json": "Shape, entries, row blocks and their checksums, sigma and n_neighbors; written after the "
        "blocks.",
        "graph/block_*/zarr.json": "anndata's csr_matrix; shape, entries and a crc32 of each array.",
        "generations/gen-*/MANIFEST.json": "A checkpoint: iteration, carry, and bytes and crc32c of every file.",
    },
)

"""The arrays that a run of pairs holds."""

from __future__ import annotations

from dataclasses import replace

from dkl.stores.graph import DATA, INDICES, INDPTR
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import CANNOT_LINK, FACTOR, LIFT, MUST_LINK, PAIR_LIFT, PAIR_WEIGHTS
from dkl.stores.slab_arrays import COMMITTED, WORKING

NUMBER = ("float64",)
_TABLE = StoredArray(
    "choice/errors", ("gamma", "fold"), NUMBER, "Choice of gamma: the error on pairs held out.", optional=True
)
_FACTOR = StoredArray(
    "choice/start", ("sample", "rank"), NUMBER, "The factor at which the fit of all pairs began.", optional=True
)

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
    PAIR_LIFT,
    _FACTOR.at("folds/fold*-*/factor", "While gamma is chosen: a fold's factor at the last gamma it has."),
    StoredArray("choice/gammas", ("gamma",), NUMBER, "Choice of gamma: the values tried.", optional=True),
    _TABLE,
    replace(_TABLE.at("choice/ranks", "Choice of gamma: ranks of the folds' kernels."), dtypes=INTEGERS),
    _TABLE.at("choice/seconds", "Choice of gamma: when each error was known."),
    _FACTOR,
    files={
        "graph/zarr.json": "Shape, entries, row blocks and their checksums, sigma and n_neighbors; written after the "
        "blocks.",
        "graph/block_*/zarr.json": "anndata's csr_matrix; shape, entries and a crc32 of each array.",
        "folds/fold*-*/MANIFEST.json": "A fold's path of gamma: its errors, ranks and seconds so far.",
        "generations/gen-*/MANIFEST.json": "A checkpoint: iteration, carry, whose it is, and bytes and crc32c of every file.",
    },
)

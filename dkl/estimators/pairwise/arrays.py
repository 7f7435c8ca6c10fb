"""Arrays of a run of pairs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dkl.errors import StoreError
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.stores import folders
from dkl.stores.graph import DATA, INDICES, INDPTR
from dkl.stores.registry import FLOATS, INTEGERS, ROWS, WHOLE, Arrays, StoredArray
from dkl.stores.run import RunStore
from dkl.stores.run_parts import CANNOT_LINK, FACTOR, LIFT, MUST_LINK, PAIR_LIFT, PAIR_WEIGHTS
from dkl.stores.seals import KEY, MANIFEST, read_json, require_identity
from dkl.stores.slab_arrays import COMMITTED, WORKING

if TYPE_CHECKING:
    from dkl.solvers.watch import Row

NUMBER = ("float64",)
_TABLE = StoredArray(
    "choice/seconds", ("gamma", "fold"), NUMBER, "Pairs held out: when each fold's kernel was done.", optional=True
)
_SCORES = StoredArray(
    "choice/scores",
    ("gamma", "pair"),
    NUMBER,
    "Pairs held out: K_ij of each pair, must-links first, by the fold that did not learn from it; NaN: no fold scores it.",
    optional=True,
)


def _of_fold(name: str, dims: tuple[str, ...], doc: str) -> StoredArray:
    """Declare an array of a fold under way."""
    return StoredArray(f"folds/fold*-*/{name}", dims, NUMBER, f"While pairs are held out: {doc}", optional=True)


SIMILARITY_FOLDER = "similarity"
"""The folder of local widths."""
FOLDS_FOLDER = "folds"
"""The folder of kernels that were learned without some pairs, while a fit is under way."""
SEARCH_FOLDER = "search"
"""The folder of the factored solver's state."""


def _search(path: str, dims: tuple[str, ...], doc: str, dtypes: tuple[str, ...] = NUMBER) -> StoredArray:
    """Declare an array of the factored solver's state while it is under way."""
    return StoredArray(f"{SEARCH_FOLDER}/{path}", dims, dtypes, doc, chunks=ROWS, optional=True)


SEARCH = (
    _search("round-*/factor", ("sample", "rank"), "V at the last certificate."),
    _search("round-*/best", ("sample", "rank"), "V of the least gap; none: the same."),
    _search("round-*/mode", ("sample",), "The certificate's direction; see problems/pairwise/certificate.py."),
    _search("round-*/lift", ("sample",), "Its lift of the diagonal."),
    _search("round-*/pair_lift", ("pair",), "Its lift of pairs i < j, by rows."),
    replace(_search("round-*/values", ("mode",), "Lowest Ritz values of the gradient at factor."), chunks=WHOLE),
    _search("round-*/vectors", ("sample", "mode"), "Their vectors; see problems/pairwise/dual_correction.py.", FLOATS),
    _search("round-*/root", ("sample",), "The root of the scaling B by which these are of B^-1/2 S B^-1/2."),
    _search("descent-*/v", ("sample", "column"), "V, padded with columns of zeros."),
    _search("descent-*/lv", ("sample", "column"), "L V."),
    _search("descent-*/residual", ("entry",), "V V' - T on the entries of T."),
    _search("descent-*/direction", ("sample", "column"), "The direction of the last step."),
    _search("descent-*/previous", ("sample", "column"), "The gradient before it."),
    _search(
        "descent-*/power", ("sample", "column"), "The preconditioner's estimate of the stiffest direction.", FLOATS
    ),
)
"""Arrays of the factored solver under way (estimators/pairwise/search_state.py)."""

ARRAYS = Arrays(
    *COLUMN_ARRAYS,
    DATA,
    INDICES,
    INDPTR,
    MUST_LINK,
    CANNOT_LINK,
    PAIR_WEIGHTS,
    StoredArray(
        f"{SIMILARITY_FOLDER}/widths", ("sample",), NUMBER, "Of sigma=local: the width of each row.", optional=True
    ),
    COMMITTED.at("generations/gen-*/V", "V of problem (5) in problems/pairwise/admm.py."),
    COMMITTED.at("generations/gen-*/U", "U; the result is a multiple of it."),
    COMMITTED.at("generations/gen-*/Lambda", "The multiplier of V = U."),
    WORKING,
    FACTOR,
    LIFT,
    PAIR_LIFT,
    _of_fold("factor", ("sample", "rank"), "a fold's factor at the last gamma it has."),
    _of_fold("scores", ("gamma", "held_out"), "K_ij of its pairs at each gamma so far."),
    _of_fold("cosines", ("gamma", "held_out"), "K_ij / sqrt(K_ii K_jj) of these."),
    StoredArray("choice/gammas", ("gamma",), NUMBER, "Pairs held out: the values of gamma compared.", optional=True),
    StoredArray(
        "choice/log_likelihood",
        ("gamma",),
        NUMBER,
        "Pairs held out: their log-likelihood by a noisy logistic curve of the scores.",
        optional=True,
    ),
    StoredArray(
        "choice/curves",
        ("gamma", "parameter"),
        NUMBER,
        "Pairs held out: slope, intercept and floor of this curve.",
        optional=True,
    ),
    _SCORES,
    _SCORES.at("choice/cosines", "Pairs held out: K_ij / sqrt(K_ii K_jj) of these."),
    replace(_TABLE.at("choice/ranks", "Pairs held out: ranks of the folds' kernels."), dtypes=INTEGERS),
    _TABLE,
    StoredArray(
        "choice/probability",
        ("pair",),
        NUMBER,
        "How likely each pair is wrong, where that was looked for; 0: all are trusted.",
        optional=True,
    ),
    StoredArray(
        "held_out/pair", ("held_out",), INTEGERS, "Quality: numbers of the pairs it is measured on.", optional=True
    ),
    StoredArray(
        "held_out/plain", ("held_out",), NUMBER, "Quality: minus their rows' squared distances.", optional=True
    ),
    StoredArray(
        "held_out/scores",
        ("held_out",),
        NUMBER,
        "Quality: K_ij by a kernel that did not learn from them.",
        optional=True,
    ),
    StoredArray(
        "choice/curve",
        ("parameter",),
        NUMBER,
        "Slope, intercept and floor of such a curve of the cosines; the floor is the estimated share of wrong pairs.",
        optional=True,
    ),
    *SEARCH,
    files={
        "graph/zarr.json": "Shape, entries, row blocks and their checksums, sigma and n_neighbors; written after the "
        "blocks.",
        "graph/block_*/zarr.json": "anndata's csr_matrix; shape, entries and a crc32 of each array.",
        "folds/fold*-*/MANIFEST.json": "A fold's path of gamma: its ranks and seconds so far.",
        "search/round-*/MANIFEST.json": "What a round of the factored solver has left: its numbers, and those of its certificate.",
        "search/descent-*/MANIFEST.json": "The factored solver within a round: its numbers.",
        "generations/gen-*/MANIFEST.json": "A checkpoint: iteration, carry, whose it is, and bytes and crc32c of every file.",
    },
)


# The history of a run of pairs: a line an iteration in its log, which has no checksum.

OF_LOG = {"event", "at", "attempt", KEY}
"""Keys of a line that are not the iteration's."""
COLUMNS = ("iteration", "objective", "primal_residual", "dual_residual", "rho_used", "relative_gap", "seconds")
"""Columns of the history that are shown if present; a gap that was not computed is None."""


def history(run: RunStore, last: int | None = None) -> list[Row]:
    """Return the iterations' rows up to number `last`, in order; of a repeated iteration the last.

    Iterations are repeated after a loss or by `resume`.

    StoreError for a malformed row.
    """
    rows: list[Row] = []
    for event in run.events():
        if event.get("event") != "iteration":
            continue
        row = {key: value for key, value in event.items() if key not in OF_LOG}
        _require_row(row, run)
        # An iteration that is written again follows from an earlier state: what was beyond it is void.
        while rows and rows[-1]["iteration"] >= row["iteration"]:
            rows.pop()
        rows.append(row)
    return [row for row in rows if last is None or row["iteration"] <= last]


def kept_rows(run: RunStore) -> int | None:
    """Return the number of history rows up to the newest stored factored state, by its manifest, if any."""
    found = []
    for name in ("round", "descent"):
        for folder in folders.numbered_folders(run.path / SEARCH_FOLDER, name):
            try:
                notes = read_json(folder / MANIFEST, sealed=True)
                require_identity(notes, run.identity, folder)
                found.append(int(notes["first"]) + int(notes["count"]))
            except (StoreError, KeyError, TypeError, ValueError, OverflowError):
                continue  # damaged: it counts as not there
    return max(found, default=None)


def _require_row(row: Row, run: RunStore) -> None:
    known = {name: row[name] for name in COLUMNS if row.get(name) is not None}
    is_whole = type(row.get("iteration")) is int and 0 <= row["iteration"] < 2**63
    if not (
        is_whole and "seconds" in known and all(map(_is_number, known.values())) and 0 <= row["seconds"] < math.inf
    ):
        raise StoreError(
            "malformed line in the history log",
            where=f"{run.path}/events.jsonl",
            got=str(known)[:200],
            wanted="numbers of an iteration",
            remedy="take that line out",
        )


def _is_number(value: object) -> bool:
    """Return whether the value is a number that fits a float, or NaN; a Boolean does not count."""
    # 2**1000: an integer in JSON may have any number of digits, and a float of it would overflow.
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)

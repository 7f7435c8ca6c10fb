"""Patterns and pairs, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.row_files import load_rows, peek_rows
from dkl.runs.inputs.side_files import read_pairs
from dkl.side_information.pairs import Pairs

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


@dataclass(frozen=True)
class PairwiseInputs:
    """Patterns and pairs that fit together, and the files that they came from."""

    files: Files
    rows: RowSource
    pairs: Pairs

    def fingerprints(self) -> Json:
        """Return the fingerprints of both input files for the run's configuration."""
        return self.files.fingerprints(data=(self.rows.n, self.rows.n_features))


def read(files: Files, settings: PairwiseSettings, *, values: bool) -> PairwiseInputs:
    """Read patterns and pairs, or the patterns' shape without `values`; InputError for impossible sizes."""
    rows = (load_rows if values else peek_rows)(files["data"], settings.memory_limit, files.data_table)
    n = rows.n
    if n < 2:
        got = f"shape {(n, rows.n_features)}"
        raise InputError("too few patterns", where=str(files["data"]), got=got, wanted="2 or more")
    if settings.n_neighbors >= n:
        wanted = f"at most {n - 1}, the number of other patterns"
        raise InputError("too many neighbors", where="--n-neighbors", got=settings.n_neighbors, wanted=wanted)
    if settings.rank != "auto" and int(settings.rank) > n:
        raise InputError("a rank beyond the number of patterns", where="--rank", got=settings.rank, wanted=f"<= {n}")
    return PairwiseInputs(files, rows, read_pairs(files, rows).check(n, settings.contradictions))

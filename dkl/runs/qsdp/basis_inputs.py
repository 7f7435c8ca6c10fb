"""Inputs of learners in the basis of smooth eigenvectors: rows, enough of them for such a basis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.estimators.qsdp.basis.settings import BasisSettings, basis_size
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.row_files import load_rows, peek_rows

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


@dataclass(frozen=True)
class BasisInputs:
    """Rows, and the files that they came from."""

    files: Files
    rows: RowSource

    def fingerprints(self) -> Json:
        """Return the fingerprints of the input files for the run's configuration."""
        return self.files.fingerprints(data=(self.rows.n, self.rows.n_features))

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs with terms in the objective; 0 for a learner without pairs."""
        return 0


def read_rows(files: Files, settings: BasisSettings, *, values: bool, least: int) -> RowSource:
    """Read the rows, or their shape alone without `values`; InputError for sizes that no fit can take."""
    rows = (load_rows if values else peek_rows)(files["data"], settings.memory_limit, files.data_table)
    if rows.n < least:
        got = f"shape {(rows.n, rows.n_features)}"
        raise InputError("too few rows", where=str(files["data"]), got=got, wanted=f"{least} or more")
    basis_size(settings.n_basis, rows.n, "--n-basis")
    return rows

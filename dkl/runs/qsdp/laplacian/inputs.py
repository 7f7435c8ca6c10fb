"""Rows and pairs, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

from dkl.estimators.laplacian.settings import PropagationSettings
from dkl.pairs import Pairs
from dkl.problems.qsdp_checks import refuse_large_weights
from dkl.runs.basis_inputs import BasisInputs, read_rows
from dkl.runs.files import Files
from dkl.runs.side_files import read_pairs


@dataclass(frozen=True)
class PropagationInputs(BasisInputs):
    """Rows and checked pairs, and the files that they came from."""

    pairs: Pairs

    @property
    def n_pairs(self) -> int:
        """Return the number of must-links and cannot-links."""
        return int(self.pairs.n_must + self.pairs.n_cannot)


def read(files: Files, settings: PropagationSettings, *, values: bool) -> PropagationInputs:
    """Read rows and pairs, or the rows' shape without `values`; InputError for what does not fit together."""
    rows = read_rows(files, settings, values=values, least=2)
    pairs = read_pairs(files, rows).check(rows.n, settings.contradictions)
    refuse_large_weights(pairs.weights)
    return PropagationInputs(files, rows, pairs)

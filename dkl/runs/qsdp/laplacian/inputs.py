"""Rows and pairs, checked as far as can be before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

from dkl.estimators.qsdp.laplacian.settings import PropagationSettings
from dkl.problems.qsdp.checks import refuse_large_weights
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.side_files import read_pairs
from dkl.runs.qsdp.basis_inputs import BasisInputs, read_rows
from dkl.side_information.pairs import Pairs


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

"""Quality of an unfolding: how well it keeps neighbors, next to as many principal components."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base import map_quality
from dkl.estimators.qsdp.basis.fit import BasisSolution
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import CheckedRows

ADVICE = "try more n_basis, another n_neighbors or nu"


def with_quality(solved: BasisSolution, rows: CheckedRows, holdout: float, watch: Watch) -> BasisSolution:
    """Return `solved` with the quality in its result; warn where principal components are better.

    rows (n, d), dense or sparse. Nothing is measured where `holdout` is 0, the fit was stopped, or rows or columns are too few.
    """
    if not holdout or not solved.embedding.shape[1]:
        return solved
    embedding = solved.embedding.__getitem__
    result = map_quality.with_quality(solved.result, row_source(rows), embedding, ADVICE, watch=watch, stacklevel=3)
    return replace(solved, result=result)

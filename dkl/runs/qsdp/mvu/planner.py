"""Plan of a run of maximum variance unfolding."""

from __future__ import annotations

from dkl.estimators.qsdp.mvu.settings import UnfoldingSettings
from dkl.runs.qsdp.basis_planner import BasisPlanner
from dkl.runs.qsdp.mvu.inputs import UnfoldingInputs


class UnfoldingPlanner(BasisPlanner[UnfoldingSettings, UnfoldingInputs]):
    """Planner of RegMVU, maximum variance unfolding."""

    def terms(self, n: int, n_pairs: int, settings: UnfoldingSettings) -> int:
        """Return an upper bound on the number of squares, one for each edge."""
        return n * min(settings.n_neighbors, n - 1)

"""Plan of a run that learns a kernel from pairs in the basis of smooth eigenvectors."""

from __future__ import annotations

from dkl.estimators.qsdp.laplacian.settings import PropagationSettings
from dkl.runs.qsdp.basis_planner import BasisPlanner
from dkl.runs.qsdp.laplacian.inputs import PropagationInputs


class PropagationPlanner(BasisPlanner[PropagationSettings, PropagationInputs]):
    """Planner of RegPCP, a kernel from pairs."""

    def terms(self, n: int, n_pairs: int, settings: PropagationSettings) -> int:
        """Return the number of squares: rows and pairs."""
        return n + n_pairs

"""What a run of a kernel from pairs in the basis of smooth eigenvectors takes."""

from __future__ import annotations

from dkl.estimators.laplacian.settings import PropagationSettings
from dkl.runs.basis_planner import BasisPlanner
from dkl.runs.laplacian.inputs import PropagationInputs


class PropagationPlanner(BasisPlanner[PropagationSettings, PropagationInputs]):
    """Of RegPCP."""

    def terms(self, n: int, n_pairs: int, settings: PropagationSettings) -> int:
        """Rows and pairs."""
        return n + n_pairs

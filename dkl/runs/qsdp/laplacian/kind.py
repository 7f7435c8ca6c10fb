"""Runs of learning a kernel from pairs in the basis of smooth eigenvectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dkl.blocks.memory.eigenvector_memory import Room
from dkl.blocks.session import Session
from dkl.datasets import read_labels
from dkl.estimators.qsdp.laplacian.settings import PropagationSettings
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.qsdp.basis_runs import BasisRuns
from dkl.runs.qsdp.laplacian import DECLARATION
from dkl.runs.qsdp.laplacian.inputs import PropagationInputs
from dkl.runs.qsdp.laplacian.planner import PropagationPlanner
from dkl.runs.stored import settings_of
from dkl.runs.supervised.inputs import has_labels
from dkl.runs.verify.comparison import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.qsdp.laplacian.fit import PosedPropagation
    from dkl.estimators.qsdp.laplacian.learner import LaplacianKernelLearner
    from dkl.linalg.rows.row_types import Rows
    from dkl.stores.sealed_json import Json


class PropagationRuns(PropagationPlanner, BasisRuns[PropagationSettings, PropagationInputs]):
    """Runs of RegPCP in a folder."""

    declaration = DECLARATION

    def problems(self) -> type[PosedPropagation]:
        """Return the class of problems; see `BasisRuns.problems`."""
        from dkl.estimators.qsdp.laplacian.fit import PosedPropagation

        return PosedPropagation

    def pose(
        self,
        rows: Rows,
        found: PropagationInputs,
        m: int,
        settings: PropagationSettings,
        session: Session,
        bytes_used: int,
        room: Room,
    ) -> PosedPropagation:
        """Return the problem for rows in memory; see `BasisRuns.pose`."""
        return self.problems().of(rows, found.pairs, m, settings, session, bytes_used, room)

    def told(self, found: Json) -> dict[str, str]:
        """Return lines on the numbers of pairs."""
        return {"pairs": f"{found['n_must']:,} must-link, {found['n_cannot']:,} cannot-link"}

    def labels(self, found: PropagationInputs) -> Any:
        """Return the labels in the rows' file, which color the picture; None without."""
        data = found.files["data"]
        return read_labels(data, found.rows.n) if has_labels(data) else None

    def claims(self, run: RunStore, found: Lazy[PropagationInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.qsdp.laplacian import verify

        return verify.claims(run, settings_of(run, {}), budget)

    def load(self, run: RunStore) -> LaplacianKernelLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.qsdp.laplacian.learner import load_learner

        return load_learner(run)

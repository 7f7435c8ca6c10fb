"""Runs of maximum variance unfolding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dkl.blocks.memory.eigenvector_memory import Room
from dkl.blocks.session import Session
from dkl.estimators.qsdp.mvu.settings import UnfoldingSettings
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.qsdp.basis_runs import BasisRuns
from dkl.runs.qsdp.mvu import DECLARATION, inputs
from dkl.runs.qsdp.mvu.inputs import UnfoldingInputs
from dkl.runs.qsdp.mvu.planner import UnfoldingPlanner
from dkl.runs.stored import settings_of
from dkl.runs.verify.comparison import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.qsdp.mvu.fit import PosedUnfolding
    from dkl.estimators.qsdp.mvu.learner import MaximumVarianceUnfolding
    from dkl.linalg.rows.row_types import Rows
    from dkl.stores.sealed_json import Json


class UnfoldingRuns(UnfoldingPlanner, BasisRuns[UnfoldingSettings, UnfoldingInputs]):
    """Runs of RegMVU in a folder."""

    declaration = DECLARATION

    def problems(self) -> type[PosedUnfolding]:
        """Return the class of problems; see `BasisRuns.problems`."""
        from dkl.estimators.qsdp.mvu.fit import PosedUnfolding

        return PosedUnfolding

    def pose(
        self,
        rows: Rows,
        found: UnfoldingInputs,
        m: int,
        settings: UnfoldingSettings,
        session: Session,
        bytes_used: int,
        room: Room,
    ) -> PosedUnfolding:
        """Return the problem for rows in memory; see `BasisRuns.pose`."""
        return self.problems().of(rows, found.side, m, settings, session, bytes_used, room)

    def told(self, found: Json) -> dict[str, str]:
        """Return lines on edges and nu."""
        rule = "by the rule" if found["settings"]["nu"] == "scale" else "given"
        return {"edges": f"{found['n_edges']:,}", "nu": f"{found['nu']:.6g}   {rule}"}

    def labels(self, found: UnfoldingInputs) -> Any:
        """Return the labels that color the picture: those named, or those in the rows' file."""
        return inputs.labels(found.files, found.rows.n)

    def claims(self, run: RunStore, found: Lazy[UnfoldingInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.qsdp.mvu import verify

        return verify.claims(run, settings_of(run, {}), budget)

    def load(self, run: RunStore) -> MaximumVarianceUnfolding:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.qsdp.mvu.learner import load_learner

        return load_learner(run)

"""Runs of maximum variance unfolding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.distributed_products import Room
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.qsdp.basis.plan import plan_unfolding
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.runs.inputs.files import Files, Lazy
from dkl.runs.inputs.readers import require_room_for_targets
from dkl.runs.qsdp.basis import BasisInputs, read_rows
from dkl.runs.qsdp.hard import HardRuns
from dkl.runs.qsdp.mvu import DECLARATION
from dkl.runs.report import Comparison
from dkl.runs.stored import settings_of
from dkl.runs.supervised.inputs import (
    file_of_targets,
    in_file,
    may_have_targets,
    note_targets,
    read_class_labels,
    target_numbers,
)
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.mvu.fit import HardDistancesProblem, UnfoldingProblem
    from dkl.estimators.qsdp.mvu.learner import MaximumVarianceUnfolding
    from dkl.linalg.rows.kmeans import Rows
    from dkl.stores.seals import Json


@dataclass(frozen=True)
class UnfoldingInputs(BasisInputs):
    """Rows, with a factor `side` (n, k) of the kernel of labels if these are learned from; and files."""

    side: NDArray[np.float64] | None


def read(files: Files, settings: UnfoldingSettings, *, values: bool) -> UnfoldingInputs:
    """Read rows and labels, or the rows' shape without `values`; InputError for what does not match."""
    rows = read_rows(files, settings, values=values, least=3)
    if not settings.colored:
        if files.paths["targets"] is not None:
            require_room_for_targets(file_of_targets(files), settings.memory_limit)
            # Read for its errors alone: a wrong file of labels is refused now, not when the picture is drawn after the fit.
            labels(files, rows.n)
            note_targets(files, rows)
        return UnfoldingInputs(files, rows, None)
    require_room_for_targets(file_of_targets(files), settings.memory_limit)
    from dkl.estimators.qsdp.mvu.fit import label_factor

    try:
        found = UnfoldingInputs(files, rows, label_factor(_side(files, rows.n), rows.n))
    except InputError as error:
        raise in_file(error, files, rows.n) from error
    note_targets(files, rows)
    return found


def labels(files: Files, n: int) -> Any:
    """Return labels (n,) that color a picture; None without, or for rows of numbers. Raises InputError."""
    if not may_have_targets(files):
        return None
    found = _side(files, n)
    return found if found.ndim == 1 else None


def _side(files: Files, n: int) -> NDArray:
    """Return labels (n,), or numbers (n, k), from the file of targets."""
    try:
        # As labels first, rows of numbers where that fails: its error, of the likelier form, is the one to show.
        return read_class_labels(files, n)
    except InputError:
        found = _numbers(files)
        # One column of numbers is labels: they have failed above for a reason.
        if found is None or found.ndim != 2 or len(found) != n or found.shape[1] < 2:
            raise
        return found


def _numbers(files: Files) -> NDArray | None:
    """Return the array of numbers in the file of targets; None for anything else."""
    try:
        found = target_numbers(files)
    except InputError:
        return None
    return found if isinstance(found, np.ndarray) else None


class UnfoldingRuns(HardRuns[UnfoldingSettings, UnfoldingInputs]):
    """Runs of RegMVU in a folder."""

    declaration = DECLARATION
    n_left_out = 1  # the constant one, which no embedding needs

    def terms(self, n: int, n_pairs: int, settings: UnfoldingSettings) -> int:
        """Return an upper bound on the number of squares, one for each edge."""
        return n * min(settings.n_neighbors, n - 1)

    def problems(self) -> type[UnfoldingProblem]:
        """Return the class of problems; see `BasisRuns.problems`."""
        from dkl.estimators.qsdp.mvu.fit import UnfoldingProblem

        return UnfoldingProblem

    def pose(
        self,
        rows: Rows,
        found: UnfoldingInputs,
        m: int,
        settings: UnfoldingSettings,
        session: Session,
        bytes_used: int,
        room: Room,
    ) -> UnfoldingProblem:
        """Return the problem for rows in memory; see `BasisRuns.pose`."""
        return self.problems().of(rows, found.side, m, settings, session, bytes_used, room)

    def problem_lines(self, found: Json) -> dict[str, str]:
        """Return lines on edges and nu."""
        rule = "by the rule" if found["settings"]["nu"] == "scale" else "given"
        return {"edges": f"{found['n_edges']:,}", "nu": f"{found['nu']:.6g}   {rule}"}

    def labels(self, found: UnfoldingInputs) -> Any:
        """Return the labels that color the picture: those named, or those in the rows' file."""
        return labels(found.files, found.rows.n)

    # -- distances as constraints ---------------------------------------------------------------------------------------

    hard_terms = "distances"

    def hard_plan(
        self, n: int, d: int, n_pairs: int, settings: UnfoldingSettings, session: Session, own: int
    ) -> HardPlan:
        """Return the plan of hard distances; see `HardRuns.hard_plan`."""
        return plan_unfolding(n, d, settings, session, own)

    def hard_problems(self) -> type[HardDistancesProblem]:
        """Return the class of problems; see `HardRuns.hard_problems`."""
        from dkl.estimators.qsdp.mvu.fit import HardDistancesProblem

        return HardDistancesProblem

    def pose_hard(
        self, rows: Rows, found: UnfoldingInputs, settings: UnfoldingSettings, session: Session, bytes_used: int
    ) -> HardDistancesProblem:
        """Return the problem for rows in memory; see `HardRuns.pose_hard`."""
        return self.hard_problems().of(rows, settings, session, bytes_used)

    def hard_lines(self, found: Json) -> dict[str, str]:
        """Return a line on the edges."""
        how = "kept" if found["settings"]["constraints"] == "hard" else "none becomes longer"
        return {"edges": f"{found['n_edges']:,}   {how}"}

    def remedies(self, run: RunStore) -> dict[str, str]:
        """Return the remedies; of distances that are kept, upper bounds are one more."""
        found = super().remedies(run)
        if settings_of(run, {}).constraints != "hard":
            return found
        other = "or take --constraints at-most: exact distances may leave the kernel no room"
        return {**found, "stalled": f"{found['stalled']}, {other}"}

    def claims(self, run: RunStore, found: Lazy[UnfoldingInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.qsdp.mvu import verify

        settings = settings_of(run, {})
        return (verify.hard_claims if settings.is_hard else verify.claims)(run, settings, budget)

    def load(self, run: RunStore) -> MaximumVarianceUnfolding:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.qsdp.mvu.learner import load_learner

        return load_learner(run)

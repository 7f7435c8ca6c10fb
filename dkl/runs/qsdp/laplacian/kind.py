"""Runs of learning a kernel from pairs in the basis of smooth eigenvectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dkl.blocks.graph.distributed_products import Room
from dkl.blocks.session import Session
from dkl.datasets import read_labels
from dkl.estimators.qsdp.basis.plan import plan_propagation
from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.problems.qsdp.checks import refuse_large_weights, refuse_weights
from dkl.runs.inputs.files import Files, Lazy
from dkl.runs.inputs.readers import naming_the_file, read_pairs
from dkl.runs.qsdp.basis import BasisInputs, read_rows
from dkl.runs.qsdp.hard import HardRuns
from dkl.runs.qsdp.laplacian import DECLARATION
from dkl.runs.report import Comparison
from dkl.runs.stored import settings_of
from dkl.runs.supervised.inputs import has_labels
from dkl.side_information.pairs import Pairs
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.laplacian.fit import HardPairsProblem, PropagationProblem
    from dkl.estimators.qsdp.laplacian.learner import LaplacianKernelLearner
    from dkl.linalg.rows.kmeans import Rows
    from dkl.stores.seals import Json


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
    with naming_the_file(files["pairs"]), settings.rule_of_contradictions() as rule:
        pairs = read_pairs(files, rows).check(rows.n, rule)
    (refuse_weights if settings.is_hard else refuse_large_weights)(pairs.weights)
    return PropagationInputs(files, rows, pairs)


class PropagationRuns(HardRuns[PropagationSettings, PropagationInputs]):
    """Runs of RegPCP in a folder."""

    declaration = DECLARATION

    def terms(self, n: int, n_pairs: int, settings: PropagationSettings) -> int:
        """Return the number of squares: rows and pairs."""
        return n + n_pairs

    def problems(self) -> type[PropagationProblem]:
        """Return the class of problems; see `BasisRuns.problems`."""
        from dkl.estimators.qsdp.laplacian.fit import PropagationProblem

        return PropagationProblem

    def pose(
        self,
        rows: Rows,
        found: PropagationInputs,
        m: int,
        settings: PropagationSettings,
        session: Session,
        bytes_used: int,
        room: Room,
    ) -> PropagationProblem:
        """Return the problem for rows in memory; see `BasisRuns.pose`."""
        return self.problems().of(rows, found.pairs, m, settings, session, bytes_used, room)

    def problem_lines(self, found: Json) -> dict[str, str]:
        """Return lines on the numbers of pairs."""
        return {"pairs": f"{found['n_must']:,} must-link, {found['n_cannot']:,} cannot-link"}

    hard_terms = "pairs, and the diagonal,"

    def hard_plan(
        self, n: int, d: int, n_pairs: int, settings: PropagationSettings, session: Session, own: int
    ) -> HardPlan:
        """Return the plan of hard pairs; see `HardRuns.hard_plan`."""
        return plan_propagation(n, d, n_pairs, settings, session, own)

    def hard_problems(self) -> type[HardPairsProblem]:
        """Return the class of problems; see `HardRuns.hard_problems`."""
        from dkl.estimators.qsdp.laplacian.fit import HardPairsProblem

        return HardPairsProblem

    def pose_hard(
        self, rows: Rows, found: PropagationInputs, settings: PropagationSettings, session: Session, bytes_used: int
    ) -> HardPairsProblem:
        """Return the problem for rows in memory; see `HardRuns.pose_hard`."""
        return self.hard_problems().of(rows, found.pairs, settings, session, bytes_used)

    def hard_lines(self, found: Json) -> dict[str, str]:
        """Return a line on the numbers of pairs."""
        return self.problem_lines(found)

    def labels(self, found: PropagationInputs) -> Any:
        """Return the labels in the rows' file, which color the picture; None without."""
        data = found.files["data"]
        return read_labels(data, found.rows.n) if has_labels(data) else None

    def claims(self, run: RunStore, found: Lazy[PropagationInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.qsdp.laplacian import verify

        settings = settings_of(run, {})
        return (verify.hard_claims if settings.is_hard else verify.claims)(run, settings, budget)

    def load(self, run: RunStore) -> LaplacianKernelLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.qsdp.laplacian.learner import load_learner

        return load_learner(run)

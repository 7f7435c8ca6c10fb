"""Runs of pairs: the graph is built from the patterns and stored with the pairs; after that neither file is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dkl.blocks.session import Session
from dkl.errors import StoreError
from dkl.estimators.base.plot_rows import MOST_PATTERNS
from dkl.estimators.pairwise.arrays import history
from dkl.estimators.pairwise.fold_store import has_graph
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.runs.inputs.files import stored_table
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.interrupt import Interrupt
from dkl.runs.kind import Facts, Notes, RunKind
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.pairwise import DECLARATION, transform
from dkl.runs.pairwise.facts import factor_blocks, facts, open_factor
from dkl.runs.pairwise.inputs import PairwiseInputs
from dkl.runs.pairwise.planner import PairwisePlanner
from dkl.runs.verify.comparison import Comparison
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.estimators.pairwise.learner import PairwiseKernelLearner
    from dkl.stores.sealed_json import Json


IN_MEMORY = 64_000_000
"""Bytes of a factor that is clustered in memory; a larger one is read from disk by blocks."""


class PairwiseRuns(PairwisePlanner, RunKind[PairwiseSettings, PairwiseInputs]):
    """Runs of KL-ADMM and the factored solver in a folder."""

    declaration = DECLARATION
    made_from = ("graph", "pairs", "similarity", "held_out", "choice")
    drawn_rows = MOST_PATTERNS
    reads_to_draw = True

    def fit(
        self,
        run: RunStore,
        found: Lazy[PairwiseInputs],
        settings: PairwiseSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.runs.pairwise.fit import fit

        return fit(run, found, settings, session, watch, notes)

    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run that `dkl info` shows."""
        return facts(run)

    def claims(self, run: RunStore, found: Lazy[PairwiseInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.pairwise import verify

        return verify.claims(run, budget)

    def load(self, run: RunStore) -> PairwiseKernelLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.pairwise.load import load_learner

        learner, known = load_learner(run, history(run)), transform.training_data(run)
        if known is not None:  # new patterns are placed among those learned from, which are read when that is asked for
            learner.n_features_in_, learner.graph_.similarity = int(known["shape"][1]), transform.similarity_of(run)
            learner._fit_rows = transform.Patterns(known, None, learner.scale_, stored_table(run))
        return learner

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of `dkl transform` for the rows of a file."""
        return transform.transformed(run, request)

    def coordinates(self, run: RunStore) -> NDArray | None:
        """Return the rows of the factor: all of a small one, which is read and checked at once."""
        stored = open_factor(run)
        if stored.nbytes > IN_MEMORY:
            return stored
        return np.concatenate([rows for _, rows in factor_blocks(run)])

    def written_by_workers(self, run: RunStore, settings: PairwiseSettings) -> list[str]:
        """Return the run's folder, to which workers write commits and the arrays of a run out of core."""
        return [str(run.path)]

    def needs_inputs(self, run: RunStore) -> bool:
        """Return whether the inputs are needed: only until graph and pairs are stored."""
        if has_graph(run):
            return False
        if not isinstance(run.config.get("inputs"), dict):
            raise StoreError(
                "no graph is stored, nor what to build it from", where=str(run.path), remedy="begin a new run"
            )
        return True

    def goes_further(self, run: RunStore, changes: Json) -> bool:
        """Return whether a smaller gap than proven is asked for, any if none was, or more iterations."""
        report = run.report()
        gap = float(report.get("certificate", {}).get("relative_gap", 0.0))
        goal = replace(PairwiseSettings(), target_gap=changes.get("target_gap")).goal
        if goal is not None and (goal < gap or report.get("outcome") == "stationary"):
            return True
        # By the limit, not the number made: the factored solver may take FINISH_SHARE times as many iterations.
        allowed = int(report.get("settings", {}).get("max_iter", report.get("n_iter", 0)))
        return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > allowed

    def interrupt(self, again: str, settings: PairwiseSettings) -> Interrupt:
        """Return the handler of Ctrl-C, answered after the iteration under way."""
        return Interrupt(again, settings.max_iter)

    def has_progress(self, run: RunStore) -> bool:
        """Return whether graph and pairs are stored."""
        return has_graph(run)

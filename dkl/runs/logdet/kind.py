"""Runs of LogDet kernel learning: a path of gammas, each kept once it is solved, then the kernel at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from dkl.blocks.session import Session
from dkl.errors import DklError, MemoryBudgetError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.base.size_guard import MOST_ROWS as LARGEST_BASIS
from dkl.estimators.base.size_guard import SQUARES
from dkl.estimators.logdet.plan import COMPONENT_SQUARES
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.resources import current_rss, format_bytes
from dkl.runs.estimate import own_rows
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.kind import Facts, Notes, RunKind
from dkl.runs.logdet import DECLARATION
from dkl.runs.logdet.facts import facts
from dkl.runs.logdet.inputs import LogDetInputs
from dkl.runs.logdet.planner import LogDetPlanner
from dkl.runs.logdet.transform import predictor
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.output.predictions import predictions
from dkl.runs.stored import settings_of
from dkl.runs.verify.comparison import Comparison
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.logdet.learner import LogDetKernelLearner
    from dkl.plotting.canvas import Picture


class LogDetRuns(LogDetPlanner, RunKind[LogDetRunSettings, LogDetInputs]):
    """Runs of TRIN in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_ROWS

    def fit(
        self,
        run: RunStore,
        found: Lazy[LogDetInputs],
        settings: LogDetRunSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.logdet.store import fit_in_run

        given = found()
        rows, own = given.rows.read(0, given.rows.n), own_rows(given.rows)
        side, codes = given.side(rows, settings), given.codes
        return fit_in_run(run, rows, side, codes, settings, session, watch, notes, own).result

    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run that `dkl info` shows."""
        return facts(run)

    def claims(self, run: RunStore, found: Lazy[LogDetInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.logdet import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> LogDetKernelLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.logdet.load import load_learner

        return load_learner(run)

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of `dkl transform` for the rows of a file."""
        return predictions(predictor(run), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[LogDetInputs]) -> Picture:
        """Return the learner's picture, with classes if the data still exist, and with any path."""
        import dkl.estimators.logdet.load  # noqa: F401  # what it imports is part of what this process holds

        _require_room(run, settings_of(run, {}))
        learner, y = self.load(run), None
        with suppress(DklError):  # labels are gone, or have changed
            codes = found().codes
            if codes is not None and len(codes) == int(learner._prior.training_rows.shape[0]):
                y = codes
        return learner.plot(y=y)


def _require_room(run: RunStore, settings: LogDetRunSettings) -> None:
    """Raise MemoryBudgetError if a picture, which recomputes K0, does not fit next to what is in memory."""
    n = trained_on(run)[0]
    whole = settings.kernel in ("laplacian", "precomputed")
    b = n if whole or n <= LARGEST_BASIS else int(run.report()["n_points"])
    needed = 8 * (SQUARES * n * n if whole else 0) + 8 * COMPONENT_SQUARES * b * b
    if settings.memory_limit is not None and current_rss() + needed > settings.memory_limit:
        got, wanted = f"memory_limit {format_bytes(settings.memory_limit)}", format_bytes(current_rss() + needed)
        raise MemoryBudgetError(f"drawing {b:,} rows does not fit", where="picture", got=got, wanted=wanted)

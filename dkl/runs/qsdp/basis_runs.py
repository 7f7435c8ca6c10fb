"""Common base of the runs of learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dkl.blocks.memory.eigenvector_memory import Room
from dkl.blocks.memory.execution_limits import note_idle_workers
from dkl.blocks.memory.plan import PROCESS_BASE
from dkl.blocks.session import Session
from dkl.errors import DklError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.qsdp.basis.checkpoint import BasisCheckpoint, open_checkpoints
from dkl.estimators.qsdp.basis.model import is_posed, posed_damage, read_model, read_similarity
from dkl.estimators.qsdp.basis.plan import plan_basis, room_for_basis
from dkl.estimators.qsdp.basis.settings import basis_size
from dkl.runs import report
from dkl.runs.echo import echo
from dkl.runs.estimate import own_rows
from dkl.runs.inputs.graph_rows import GraphRows
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.kind import Facts, Notes, RunKind
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.output.predictions import predictions
from dkl.runs.qsdp.basis_planner import BasisPlanner, I, S
from dkl.runs.stored import settings_of
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.estimators.qsdp.basis.fit import BasisProblem
    from dkl.linalg.rows.row_types import Rows
    from dkl.plotting.canvas import Picture
    from dkl.stores.sealed_json import Json


class BasisRuns(BasisPlanner[S, I], RunKind[S, I]):
    """Base of runs for which a learner supplies how it reads, poses, and describes its problem."""

    drawn_rows = MOST_ROWS

    @abstractmethod
    def problems(self) -> type[BasisProblem]:
        """Return the learner's class of problems, a `Posed`."""

    @abstractmethod
    def pose(
        self, rows: Rows, found: I, m: int, settings: S, session: Session, bytes_used: int, room: Room
    ) -> BasisProblem:
        """Return the problem for rows (n, d) in memory.
        bytes_used: bytes of the limit that are already in use; room: memory for its basis."""

    @abstractmethod
    def told(self, found: Json) -> dict[str, str]:
        """Return lines on the problem from a report."""

    def labels(self, found: I) -> Any:
        """Return labels (n,) that color the picture, or None; raise InputError for invalid ones."""
        return None

    # -- what follows from these --------------------------------------------------------------------------------------

    def config(self, found: I) -> Json:
        """Return the number of pairs, so that a plan can be made without the files."""
        return {"n_pairs": found.n_pairs}

    def fit(
        self, run: RunStore, found: Lazy[I], settings: S, session: Session, watch: Watch, notes: Notes = dict
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.qsdp.basis.store import fit_in_run

        def make() -> tuple[Rows, BasisProblem]:
            if (damage := posed_damage(run, whole=True)) is not None:
                echo(f"note: the basis is damaged and is made again: {damage}", err=True)
            given = found()
            found.release()  # once the rows are kept they are needed no more
            rows, m = given.rows.read(0, given.rows.n), basis_size(settings.n_basis, given.rows.n)
            held = own_rows(given.rows)
            room = room_for_basis(self.sizes(given, settings), settings, session, held)
            return rows, self.pose(rows, given, m, settings, session, PROCESS_BASE + held, room)

        if is_posed(run):
            n_pairs: Any = run.config.get("n_pairs", 0)
            plan = plan_basis(self.sizes_of(*trained_on(run), int(n_pairs), settings), settings, session)
        else:
            plan = self.plan(found(), settings, session)
        note_idle_workers(plan)
        return fit_in_run(run, self.problems(), make, settings, plan.as_dict(), watch, notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return state, sizes, certificate, DIMACS errors and history of the run."""
        if not run.is_complete:
            return Facts(report.state(run, _under_way), details={"history": []})
        with report.damages(run):
            found = run.report()
            result = {
                "eigenvectors": f"{found['n_basis']:,}   to a residual of {found['residual']:.2g}",
                **self.told(found),
                "steps": str(found["n_iter"]),
                **report.certificate(found["certificate"]),
                "worst DIMACS error": f"{max(map(abs, found['certificate']['dimacs'])):.3g}",
                "components": str(found["n_components"]),
            }
            return Facts(report.state(run, _under_way), {}, result, [], {"history": found["history"]})

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return coordinates of the rows of a file."""
        rows, found = read_model(run)
        embedding, settings = found["embedding"], settings_of(run, {})
        kept = GraphRows(rows, embedding, read_similarity(run, settings))
        what = f"rows of {embedding.shape[1]} coordinates"
        return predictions(kept.predictor(what), self.declaration.files, request)

    def coordinates(self, run: RunStore) -> NDArray | None:
        """Return the coordinates (n, r) of the rows learned from; see `RunKind.coordinates`."""
        return read_model(run)[1]["embedding"]

    def picture(self, run: RunStore, found: Lazy[I]) -> Picture:
        """Return the learner's picture, with labels if there are any and the data still exist."""
        labels = None
        with suppress(DklError):  # they are gone, or have changed
            labels = self.labels(found())
        return self.load(run).plot(y=labels)

    def needs_inputs(self, run: RunStore) -> bool:
        """Return whether the inputs are needed: only until the basis is stored."""
        return not is_posed(run)

    def has_progress(self, run: RunStore) -> bool:
        """Return whether the run has a stored basis."""
        return is_posed(run)


def _under_way(run: RunStore) -> str:
    if (damage := posed_damage(run)) is not None:
        return f"the basis is damaged, and `dkl resume` makes it again: {damage.what}"
    if not is_posed(run):
        return "not started"
    _, kept = open_checkpoints(run).load(BasisCheckpoint)
    return "resumable; the basis is kept" + (f", and the solver's step {kept.state.iteration}" if kept else "")

"""Common base of the runs of learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dkl.blocks.graph.distributed_products import Room
from dkl.blocks.graph.neighbor_search import plan_graph
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DklError, InputError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.qsdp.basis.checkpoint import BasisCheckpoint, open_checkpoints
from dkl.estimators.qsdp.basis.model import is_posed, posed_damage, read_model, read_similarity
from dkl.estimators.qsdp.basis.plan import BASES, BasisSizes, place_basis, plan_basis, room_for_basis
from dkl.estimators.qsdp.settings import BasisSettings, basis_size
from dkl.runs import report
from dkl.runs.estimate import flops_a_second, own_rows
from dkl.runs.inputs.files import Files, Lazy
from dkl.runs.inputs.readers import check_values, load_rows, peek_rows
from dkl.runs.interrupt import echo
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.predictions import GraphRows, applied_bytes, graph_needs, predictions, with_later
from dkl.runs.registry import Estimate, Facts, Notes, RunKind
from dkl.runs.stored import settings_of
from dkl.solvers.qsdp.steps import JOINT
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.blocks.workers.dense_work import DensePlace
    from dkl.estimators.qsdp.basis.fit import BasisProblem
    from dkl.linalg.rows.kmeans import Rows
    from dkl.plotting.canvas import Picture
    from dkl.stores.seals import Json


# -- inputs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BasisInputs:
    """Rows, and the files that they came from."""

    files: Files
    rows: RowSource

    def fingerprints(self) -> Json:
        """Return the fingerprints of the input files for the run's configuration."""
        return self.files.fingerprints(data=(self.rows.n, self.rows.n_features))

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs with terms in the objective; 0 for a learner without pairs."""
        return 0


def read_rows(files: Files, settings: BasisSettings, *, values: bool, least: int) -> RowSource:
    """Read the rows, or their shape alone without `values`; InputError for sizes that no fit can take."""
    rows = (load_rows if values else peek_rows)(files["data"], settings.memory_limit, files.data_table)
    if rows.n < least:
        got = f"shape {(rows.n, rows.n_features)}"
        raise InputError("too few rows", where=str(files["data"]), got=got, wanted=f"{least} or more")
    basis_size(settings.n_basis, rows.n, "--n-basis")
    return rows


# -- plan ---------------------------------------------------------------------------------------------------------------


PRODUCTS = 100
"""Approximate number of conjugate gradients' products in a step of Newton's method."""

S = TypeVar("S", bound=BasisSettings)
I = TypeVar("I", bound=BasisInputs)  # noqa: E741  # of inputs


def _verified(sizes: BasisSizes, settings: BasisSettings, own: int) -> int:
    """Return the bytes of `dkl verify`: rows, the stored rows, the recomputed graph, and the basis."""
    k = max(1, min(settings.n_neighbors, sizes.n - 1))
    graph = plan_graph(sizes.n, sizes.d, 8, k, None, is_joined=bool(sizes.first))
    return 3 * own + int(graph["peak"]) + BASES * 8 * sizes.n * sizes.m


# -- runs ---------------------------------------------------------------------------------------------------------------


class BasisRuns(RunKind[S, I]):
    """Base of runs for which a learner supplies how it reads, poses, and describes its problem."""

    drawn_rows = MOST_ROWS
    n_left_out = 0
    """Eigenvectors before the basis that are computed and left out."""

    @abstractmethod
    def terms(self, n: int, n_pairs: int, settings: S) -> int:
        """Return an upper bound on the number of squares in the objective for n rows."""

    def sizes(self, found: I, settings: S) -> BasisSizes:
        """Return the sizes of the fit of these inputs."""
        return self.sizes_of(found.rows.n, found.rows.n_features, found.n_pairs, settings)

    def sizes_of(self, n: int, d: int, n_pairs: int, settings: S) -> BasisSizes:
        """Return the sizes of a fit of n rows with d features and `n_pairs` pairs."""
        m = basis_size(settings.n_basis, n, "--n-basis")
        return BasisSizes(n, d, m, self.terms(n, n_pairs, settings), first=self.n_left_out)

    def plan(self, found: I, settings: S, session: Session) -> Plan:
        """Return the memory plan; MemoryBudgetError names the largest basis that fits."""
        sizes, own, place = self.sizes(found, settings), own_rows(found.rows), Place.of(session)
        made = plan_basis(sizes, settings, session, own)
        needs = graph_needs(sizes.n, sizes.d, sizes.m, settings.n_neighbors)
        # Planned with the fit: a run that could not be verified or applied afterwards is better refused now.
        later = {
            "dkl transform": applied_bytes(needs, found.rows, place),
            "dkl verify": _verified(sizes, settings, own),
        }
        return with_later(made, place, settings.memory_limit, later)

    def disk_bytes(self, found: I, settings: S, plan: Plan) -> int:
        """Return bytes of rows, basis, terms, the result and that without held-out pairs, two solver states."""
        sizes = self.sizes(found, settings)
        columns = min(sizes.m, getattr(settings, "n_components", sizes.m))
        # 48 bytes a square: its two ends, its weight or length, and the multipliers of both kernels are 40.
        kept = own_rows(found.rows) + 8 * sizes.n * (sizes.m + columns) + 48 * sizes.terms
        # At most six (m, m): Y, the factor without held-out pairs, and two states of R with its best.
        return kept + 8 * 6 * sizes.m**2

    def estimate(self, found: I, settings: S, plan: Plan, session: Session) -> Estimate:
        """Return sizes and seconds, for `dkl plan`."""
        sizes = self.sizes(found, settings)
        before = f"{sizes.n:,} rows, {sizes.d:,} features; {sizes.m:,} eigenvectors, up to {sizes.terms:,} squares"
        side, speed = min(sizes.m * (sizes.m + 1) // 2, JOINT), flops_a_second()
        # The preconditioner's equations, and conjugate gradients' products, each of a square with m numbers of each end.
        seconds = (sizes.terms * side**2 + side**3 / 3 + PRODUCTS * 8 * sizes.terms * sizes.m) / speed
        after = [
            f"about {seconds:.2g} s a step of Newton's method in this process, by a product that was measured here;"
        ]
        return Estimate([before], [*after, f"up to {settings.max_iter} steps, commonly 5 to 40"])

    def check_values(self, found: I, settings: S) -> None:
        """Raise InputError for a value that is not finite."""
        check_values(found.rows)

    @abstractmethod
    def problems(self) -> type[BasisProblem]:
        """Return the learner's class of problems."""

    @abstractmethod
    def pose(
        self, rows: Rows, found: I, m: int, settings: S, session: Session, bytes_used: int, room: Room
    ) -> BasisProblem:
        """Return the problem for rows (n, d) in memory.
        bytes_used: bytes of the limit that are already in use; room: memory for its basis."""

    @abstractmethod
    def problem_lines(self, found: Json) -> dict[str, str]:
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
            note_damage(run)
            given = found()
            found.release()  # once the rows are kept they are needed no more
            # Whole: the graph's search, the quality and the stored rows all take them from memory.
            rows, m = given.rows.read(0, given.rows.n), basis_size(settings.n_basis, given.rows.n)
            held = own_rows(given.rows)
            room = room_for_basis(self.sizes(given, settings), settings, session, held)
            return rows, self.pose(rows, given, m, settings, session, PROCESS_BASE + held, room)

        # A resumed run needs no input files: its sizes are in its own folder.
        if is_posed(run):
            n_pairs: Any = run.config.get("n_pairs", 0)
            sizes, own = self.sizes_of(*trained_on(run), int(n_pairs), settings), 0
        else:
            sizes, own = self.sizes(found(), settings), own_rows(found().rows)

        def placed() -> tuple[Plan, DensePlace]:
            return place_basis(sizes, settings, session, own)

        return fit_in_run(run, self.problems(), make, settings, placed, session, watch, notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return state, sizes, certificate, DIMACS errors and history of the run."""
        if not run.is_complete:
            return Facts(report.state(run, self.under_way), details={"history": []})
        with report.damages(run):
            # The report alone, no array: `dkl info` is quick whatever the size of the run.
            found = run.report()
            result, details = self.result_lines(found), {"history": found["history"]}
            return Facts(report.state(run, self.under_way), {}, result, [], details)

    def under_way(self, run: RunStore) -> str:
        """Return the state of a run without a result, as text."""
        if (damage := posed_damage(run)) is not None:
            return f"the basis is damaged, and `dkl resume` makes it again: {damage.what}"
        if not is_posed(run):
            return "not started"
        step = self.kept_step(run)
        return "resumable; the basis is kept" + ("" if step is None else f", and the solver's step {step}")

    def kept_step(self, run: RunStore) -> int | None:
        """Return the step of the solver's state that is kept, or None."""
        _, kept = open_checkpoints(run).load(BasisCheckpoint)
        return None if kept is None else kept.state.iteration

    def result_lines(self, found: Json) -> dict[str, str]:
        """Return lines on the result from a report."""
        return {
            "eigenvectors": f"{found['n_basis']:,}   to a residual of {found['residual']:.2g}",
            **self.problem_lines(found),
            "steps": str(found["n_iter"]),
            **report.certificate(found["certificate"]),
            "worst DIMACS error": f"{max(map(abs, found['certificate']['dimacs'])):.3g}",
            "components": str(found["n_components"]),
            **report.placement(found),
        }

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


def note_damage(run: RunStore) -> None:
    """Print that rows or basis of a run are damaged, where they are."""
    if (damage := posed_damage(run, whole=True)) is not None:
        echo(f"note: the basis is damaged and is made again: {damage}", err=True)

"""A kernel under hard constraints: the problem that a learner poses, its solution, its own eigenvectors, and the fit in a run's folder.

K = R R' is found on all rows, without a basis of the graph. Learners keep it as K = Q Y Q' as well, with Q the eigenvectors of K. A run
has rows and problem once, checkpoints, and the kernel and what proves it at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import (
    check_lengths,
    check_rows,
    point_arrays,
    read_points,
    report_of,
    result_in,
    trained_on,
)
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.qsdp.basis.checkpoint import open_checkpoints, write_end
from dkl.estimators.qsdp.basis.fit import RANK, Basis
from dkl.estimators.qsdp.basis.model import PARTS, read_model, similarity_of
from dkl.problems.qsdp.linear import LinearSDP, SDPCertificate
from dkl.resources import one_blas_thread, peak_rss
from dkl.solvers.qsdp.augmented import Array, LagrangianState, LinearSDPSolution
from dkl.solvers.qsdp.augmented_steps import reduced
from dkl.solvers.qsdp.interior import PathState
from dkl.solvers.watch import Outcome, Result, Row, Watch, remedies
from dkl.stores.checkpoints import StateCheckpointer
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dkl.estimators.base.validation import CheckedRows
    from dkl.estimators.qsdp.basis.learner import BasisLearner
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import BasisSettings
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows


Matrix = NDArray[np.float64]
MEASURE = "relative gap and infeasibility"
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled="steps no longer come nearer: loosen tol",
    numerical_error="a value stopped being finite: scale the rows",
)


@dataclass(frozen=True)
class HardSolution:
    """Kernel K = Q Y Q' by its eigenvectors Q (n, r), with Y diagonal; embedding (n, k), what is proven, and the result.

    held_out: arrays that a run stores of the measurement of the quality.
    """

    basis: Basis
    Y: Matrix = field(repr=False)
    embedding: Matrix = field(repr=False)
    solution: LinearSDPSolution
    result: Result
    held_out: dict[str, Matrix] = field(default_factory=dict, repr=False)

    @property
    def certificate(self) -> SDPCertificate:
        """Return the certificate."""
        found: SDPCertificate = self.solution.certificate
        return found


class HardProblem(Protocol):
    """A learner's problem under hard constraints, with what a run stores to restore it."""

    @property
    def problem(self) -> LinearSDP:
        """Return the semidefinite program."""

    @property
    def laplacian(self) -> csr_array:
        """Return the Laplacian (n, n) of the graph."""

    @property
    def similarity(self) -> Similarity:
        """Return the similarity by which unseen rows are means of others."""

    def solve(
        self, rows: Any, planned: HardPlan, watch: Watch, checkpointer: HardCheckpointer | None = None
    ) -> HardSolution:
        """Return the kernel of checked rows (n, d), resumed from the state of the checkpointer, if any."""

    def with_quality(self, found: HardSolution, rows: CheckedRows, planned: HardPlan, watch: Watch) -> HardSolution:
        """Return `found` with its quality, of rows (n, d) learned from; warn if an alternative is better."""

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays by the names that the learner's arrays.py declares in the folder "basis"."""

    def model(self, found: HardSolution) -> dict[str, NDArray]:
        """Return the arrays of the folder "model" other than the kernel and its multipliers."""

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries on this problem."""

    @classmethod
    def restored(cls, n: int, found: dict[str, NDArray], similarity: Similarity, settings: Any) -> Self:
        """Restore the problem of n rows from the arrays that `arrays` returned; InputError for invalid ones."""


def solve_hard(
    posed: HardProblem,
    planned: HardPlan,
    settings: BasisSettings,
    watch: Watch,
    solve: Callable[[Watch], LinearSDPSolution],
    *,
    seconds: float = 0.0,
    rows: NDArray[np.int64] | None = None,
    most_axes: int | None = None,
    stalled: str = "",
) -> HardSolution:
    """Solve under hard constraints and show the kernel by its eigenvectors; the bound holds for the kernel that is shown.

    seconds: of the graph; rows (n,): each row's row of the problem's K, where rows share them; most_axes: columns of the embedding, at
    most; stalled: what may help, other than a larger tol, where steps no longer come nearer.
    """
    before, problem = watch.seconds, posed.problem
    found = solve(watch)
    with one_blas_thread():
        # The problem's K may have one row for several of the learner's; `handed` is the kernel on the problem's rows again, so that
        # the certificate is of the very kernel that is returned, cut to its rank.
        # A factor by its singular vectors: columns are orthogonal then, and over their lengths eigenvectors of K.
        factor = reduced(found.factor if rows is None else found.factor[rows], RANK)
        sizes = np.linalg.norm(factor, axis=0)
        Q = np.ascontiguousarray(factor / sizes)
        handed = Q if rows is None else Q[np.unique(rows, return_index=True)[1]]
        low = found.certificate.min_eigenvalue
        # `low` is S's, which the factor has no part in: the costly eigenvalue is not computed again.
        found = replace(found, certificate=problem.certify(handed * sizes, found.dual, low))
    basis = basis_of(Q, posed.laplacian, posed.similarity, seconds)
    remedy = REMEDIES[found.outcome] + (stalled if found.outcome is Outcome.STALLED else "")
    times = {"graph": seconds, "solve": watch.seconds - before, "total": watch.seconds}
    result = Result(
        found.outcome, found.n_iter, watch.history, times, peak_rss(), plan=planned.plan.as_dict(),
        remedy=remedy, proven=found.certificate.error, asked=settings.tol, measure=MEASURE,
    )  # fmt: skip
    return HardSolution(basis, np.diag(sizes**2), np.ascontiguousarray(factor[:, :most_axes]), found, result)


@one_blas_thread()
def basis_of(Q: Matrix, laplacian: csr_array, similarity: Similarity, seconds: float = 0.0) -> Basis:
    """Return the eigenvectors Q (n, r) of a kernel as a basis, of a graph that took `seconds`."""
    image = laplacian @ Q
    # Rayleigh quotients: Q are no eigenvectors of L, and the residual says by how much.
    values = np.einsum("ij,ij->j", Q, image)
    apart = float(np.linalg.norm(image - Q * values, axis=0).max())
    residual = apart / (float(abs(laplacian).sum(axis=1).max()) or 1.0)  # 0 of rows that are all cut off
    return Basis(Q, values, residual, "constraints", similarity, {"graph": seconds})


Method = Literal["solve", "interior"]
"""Stages of the history: by factors, and by the interior point."""


@dataclass(frozen=True)
class EndedMethod:
    """Solution of the method that had the first turn, where the other has the second; low: of its certificate."""

    method: Method
    outcome: Outcome
    factor: Annotated[Array, "sample", "first column"] = field(repr=False)
    dual: Annotated[Array, "edge"] = field(repr=False)
    low: float
    n_iter: int
    n_newton: int
    face: int | None

    @classmethod
    def of(cls, method: Method, found: LinearSDPSolution) -> EndedMethod:
        """Return what is kept of a solution."""
        low = float(found.certificate.min_eigenvalue)
        return cls(method, found.outcome, found.factor, found.dual, low, found.n_iter, found.n_newton, found.face)

    def solution(self, problem: LinearSDP) -> LinearSDPSolution:
        """Return the solution, certified once more."""
        proof = problem.certify(self.factor, self.dual, self.low)
        return LinearSDPSolution(
            self.outcome, self.factor, self.dual, proof, self.n_iter, self.n_newton, self.face
        )  # fmt: skip


@dataclass(frozen=True)
class HardCheckpoint:
    """State of the method under way, the solution of the one before it, and the history's rows up to it."""

    method: Method
    state: PathState | LagrangianState
    ended: EndedMethod | None = None
    rows: list[Row] = field(default_factory=list, repr=False)

    @property
    def step(self) -> int:
        """Return the number of the step, which those of a method before it count in."""
        # One more than its steps, so that the second method's step 0 is not taken for the first one's last.
        return self.state.iteration + (0 if self.ended is None else self.ended.n_iter + 1)

    def fits(self, n: int, p: int) -> bool:
        """Return whether it is of a problem of n rows with p constraints, its method's own, and finite."""
        of_best = [(self.state.best, self.state.best_dual)]
        of_best += [] if self.ended is None else [(self.ended.factor, self.ended.dual)]
        are_finite = all(np.isfinite(one).all() for one in vars(self.state).values() if isinstance(one, np.ndarray))
        is_own = isinstance(self.state, PathState) == (self.method == "interior")
        return is_own and are_finite and all(len(R) == n and len(y) == p for R, y in of_best)


class HardCheckpointer(StateCheckpointer[HardCheckpoint | None]):
    """Checkpointer of the state of a method, every `every` steps or by time."""

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every, open_checkpoints(run), HardCheckpoint, None)
        self.kept: Callable[[], list[Row]] = list
        if self.state is not None:
            self.rule.step = self.rule.committed = self.state.step

    def keep_if_of(self, problem: LinearSDP) -> None:
        """Forget a state that is not of this problem."""
        if self.state is not None and not self.state.fits(problem.n, problem.p):
            self.state, self.rule.step, self.rule.committed = None, 0, 0

    def ended(self, watch: Watch) -> EndedMethod | None:
        """Return the method that had the first turn, if that has ended, its rows restored to a stage of `watch`."""
        if self.state is None or self.state.ended is None:
            return None
        self._restore(watch.stage(self.state.ended.method), self.state.ended.method)
        return self.state.ended

    def options(
        self, watch: Watch, stage: Watch, method: Method, face: int | None = None, ended: EndedMethod | None = None
    ) -> dict[str, Any]:
        """Return the options by which a method resumes in its stage of `watch`, and hands over its states."""
        return {
            "resume_from": self.resume(stage, method, face),
            "on_state": lambda found: self.on_state(HardCheckpoint(method, found, ended), watch),
        }

    def resume(self, stage: Watch, method: Method, face: int | None) -> Any:
        """Return the state that the method resumes from, its rows restored to its stage; None if none is stored, or of another face."""
        if self.state is None or self.state.method != method:
            return None
        # W is (m, m), which of a face of another size it is not.
        if isinstance(self.state.state, PathState) and len(self.state.state.W) != face:
            return None
        self._restore(stage, method)
        return self.state.state

    def _restore(self, stage: Watch, method: Method) -> None:
        assert self.state is not None  # or there are no rows
        stage.resume([row for row in self.state.rows if row.get("stage") == method])

    def on_state(self, found: HardCheckpoint, watch: Watch) -> None:
        """Record a method's current state, and commit it if due."""
        # The state that was resumed from is reported again at its step: it is on disk.
        if self.state is None or found.step != self.rule.step:
            count = watch.n_rows
            self.state, self.kept = found, lambda: watch.history[:count]
            self.rule.step = found.step
            self.commit_due()

    def to_snapshot(self, state: HardCheckpoint | None) -> HardCheckpoint:
        """Return the state with its rows."""
        assert state is not None  # a step was taken
        return replace(state, rows=self.kept())

    def log_entries(self, state: HardCheckpoint | None) -> dict[str, object]:
        """Return the iteration of the state."""
        return {} if state is None else {"iteration": state.state.iteration}


P = TypeVar("P", bound=HardProblem)
E = TypeVar("E", bound="BasisLearner")
WHAT = "constraints whose parts do not fit together"
CERTIFICATE = ("objective", "bound", "gap", "relative_gap", "infeasibility", "min_eigenvalue")
"""Names of the certificate's numbers."""


def fit_hard_in_run(
    run: RunStore,
    kind: type[P],
    make: Callable[[], tuple[Rows, P]],
    settings: BasisSettings,
    planned: Callable[[int], HardPlan],
    watch: Watch,
    notes: Callable[[dict[str, object]], dict[str, object]] = dict,
) -> HardSolution:
    """Fit in a run's folder, resumed from the stored constraints and state; bit-identical to an undisturbed fit.

    planned: the plan, by the bytes of the rows. make: (rows (n, d), the problem), where nothing is kept or it is damaged.
    Raises InterruptedRunError where the watch ends the run for it to be resumed.
    """
    checkpointer = HardCheckpointer(run, settings.checkpoint_every)
    with checkpointer.committed_at_interrupt(watch, "stopped between two steps"):
        posed = _posed(run, kind, make, settings)
        checkpointer.keep_if_of(posed.problem)
        kept = run.read_arrays("rows")
        rows, plan = read_points(kept, f"{run.path}/rows"), planned(sum(part.nbytes for part in kept.values()))
        found = posed.solve(rows, plan, watch, checkpointer)
        # A fit that ends to be resumed measures nothing: the quality is another solve, which would delay the end.
        if not watch.is_interrupted:
            found = posed.with_quality(found, rows, plan, watch)
    model = {"Q": found.basis.Q, "Y": found.Y, "embedding": found.embedding, "dual": found.solution.dual}
    run.write_arrays("model", {**model, **posed.model(found)})
    write_end(run, found.result, found.held_out, notes(_report(posed, found, settings)), checkpointer)
    return found


def _posed(run: RunStore, kind: type[P], make: Callable[[], tuple[Rows, P]], settings: BasisSettings) -> P:
    try:
        for part in PARTS:
            run.check_part(part, whole=True)
        return problem_in(run, kind, settings)
    except StoreError:  # not there yet, or damaged: the rows have all that it is made from
        rows, posed = make()
    run.write_arrays("rows", point_arrays(rows))
    run.write_arrays("basis", {**posed.arrays(), "widths": posed.similarity.widths})
    return posed


def problem_in(run: RunStore, kind: type[P], settings: BasisSettings) -> P:
    """Return the problem that a run keeps; StoreError if missing or not valid."""
    found, where, n = run.read_arrays("basis"), f"{run.path}/basis", trained_on(run)[0]
    check_lengths(run, "basis", found, WHAT, where, sample=n, one=1)
    # A copy: arrays that zarr decodes may be read-only, or a view of a larger buffer.
    similarity = similarity_of(np.array(found["widths"]), n, settings, run)
    try:
        return kind.restored(n, found, similarity, settings)
    except KeyError as error:
        raise StoreError(WHAT, where=where, got=", ".join(sorted(found)), wanted=f"{error} too") from error
    except InputError as error:
        what = f"{WHAT}: {error.what}"
        raise StoreError(what, where=f"{where}/{error.where}", got=error.got, wanted=error.wanted) from error


def _report(posed: HardProblem, found: HardSolution, settings: BasisSettings) -> dict[str, object]:
    certificate, result, y = found.certificate, found.result, found.solution.dual
    return report_of(
        result, settings.as_dict(), n_basis=len(found.Y), n_components=int(found.embedding.shape[1]), **posed.report_entries(),
        face=found.solution.face, dual_value=float(posed.problem.b @ y), dual_size=float(np.abs(y).sum()),
        certificate={name: float(getattr(certificate, name)) for name in CERTIFICATE}, history=result.history,
    )  # fmt: skip


def load_hard(run: RunStore, learner: Callable[..., E], kind: type[HardProblem]) -> E:
    """Restore a learner of this class, and its problem of this kind, from a run; StoreError for parts that do not fit together."""
    stored, declared = run.config["settings"], learner.SETTINGS  # type: ignore[attr-defined]
    posed, (rows, model) = problem_in(run, kind, declared(**stored)), read_model(run)
    if "Q" not in model or "dual" not in model or len(model["dual"]) != posed.problem.p:
        raise StoreError("a model and constraints that do not fit together", where=str(run.path))
    if "cliques" in model:  # of a face; nothing here is made of them, but a run with other rows is not sound
        where, sizes = f"{run.path}/model/cliques", model.get("clique_sizes")
        check_rows(len(model["Q"]), model["cliques"], where)
        if sizes is None or (sizes < 1).any() or int(sizes.sum()) != len(model["cliques"]):
            raise StoreError("cliques of other sizes", where=where)
    numbers, result = run.report()["certificate"], result_in(run)
    # As reported, not computed again: a load is to be quick; `dkl verify` recomputes it.
    proof = SDPCertificate(**{name: float(numbers[name]) for name in CERTIFICATE})
    Q, Y = model["Q"], model["Y"]
    solution = LinearSDPSolution(
        # Steps of Newton's method are not stored: n_iter is in their place.
        result.outcome, Q * np.sqrt(np.maximum(np.diagonal(Y), 0.0)), model["dual"], proof, result.n_iter, result.n_iter,
        run.report()["face"],
    )  # fmt: skip
    basis = basis_of(np.ascontiguousarray(Q), posed.laplacian, posed.similarity)
    made = remade(learner, declared, stored)
    made.n_features_in_, made.scale_ = int(rows.shape[1]), read_scale(run)
    made._keep_hard(rows, HardSolution(basis, Y, model["embedding"], solution, result), posed)
    return made

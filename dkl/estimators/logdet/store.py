"""TRIN in a run's folder: a path of gammas, each stored once solved, and the kernel or metric at its end; and the metric's learner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import note_idle_workers
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import DenseWork, blas_threads
from dkl.estimators.base.learned_kernel import LeadingComponents, components_of
from dkl.estimators.base.mahalanobis import prior_metric
from dkl.estimators.base.plot_rows import sampled
from dkl.estimators.base.prior_kernels import GraphKernel, PrecomputedPrior, PriorKernel, RowKernel, prior_kernel
from dkl.estimators.base.progress import solve_in_place
from dkl.estimators.base.run_arrays import point_arrays, read_history, report_of, result_in, trained_on, write_history
from dkl.estimators.base.settings import remade
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.logdet.fit import GammaProblem, learned_matrix, pose_kernel, pose_metric, result_of, stage_of
from dkl.estimators.logdet.metric import LogDetMetricLearner
from dkl.estimators.logdet.model import ARRAYS, check_metric_model, metric_settings_in
from dkl.estimators.logdet.plan import KernelPlan, plan_kernel, plan_metric, sizes_of
from dkl.estimators.logdet.quality import HeldOutPart, neighbor_error
from dkl.estimators.logdet.settings import LogDetMetricRunSettings, LogDetMetricSettings, LogDetRunSettings
from dkl.linalg.eigen.principal_coordinates import metric_components
from dkl.problems.logdet.problem import LogDetCertificate
from dkl.solvers.logdet.solve import LogDetSolution
from dkl.solvers.watch import Outcome, Result, Row, Watch
from dkl.stores.checkpoints import CheckpointFolder, StateCheckpointer
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


Matrix = NDArray[np.float64]
Codes = NDArray[np.int64] | None
Notes = Callable[[dict[str, object]], dict[str, object]]
"""Function that adds to a report before it is written."""


def follow(
    posed: GammaProblem, codes: Codes, gammas: list[float], begin: Sequence[LogDetSolution], work: DenseWork,
    checkpointer: PathCheckpointer,
    watch: Watch,
) -> list[PathPoint]:  # fmt: skip
    """Solve all gammas in order, after those stored, each from a start that the solutions before predict.

    begin: solutions that lead to the first.
    """
    path = checkpointer.resume(gammas, len(posed.constraints))
    for one in path:
        stage_of(watch, gammas, one.gamma).resume(one.rows)
    for gamma in gammas[len(path) :]:
        # Two, as a start is predicted along the line through them.
        before: Sequence[LogDetSolution] = path[-2:] or begin
        stage = stage_of(watch, gammas, gamma)
        solution, error = solve_in_place(work, stage, _solve, gamma, before, codes)
        path.append(one := PathPoint.of(solution, stage.history, error))
        if watch.is_interrupted:  # who means to resume it wants no result
            break
        # Not where it is interrupted: a gamma that is cut short is solved again.
        checkpointer.on_solution(one)
    return path


def _solve(
    posed: GammaProblem, gamma: float, before: Sequence[LogDetSolution], codes: Codes, watch: Watch
) -> tuple[LogDetSolution, float | None]:
    """Return (the solution at one gamma, the error of nearest labeled neighbors), wherever this runs."""
    solution = posed.solve(gamma, before, watch)
    return solution, None if codes is None else neighbor_error(posed.learned(solution).block, codes)


@dataclass(frozen=True)
class SolvedPath:
    """A path that is solved in a run's folder: what kernels and metrics have in common, from the plan to the report."""

    run: RunStore
    settings: Any
    watch: Watch
    checkpointer: PathCheckpointer
    plan: KernelPlan
    work: DenseWork
    held: HeldOutPart
    path: list[PathPoint]
    seconds: dict[str, float]

    @classmethod
    def of(
        cls, run: RunStore, side: SideInformation, codes: Codes, settings: Any, session: Session, watch: Watch,
        planned: Callable[[], KernelPlan], posed_by: Callable[[KernelPlan], GammaProblem], stage: str,
    ) -> SolvedPath:  # fmt: skip
        """Solve a path, resumed from its stored gammas; bit-identical to an undisturbed fit. A kill costs the gamma under way.

        codes (n,): classes of labeled rows, if these are what is learned from; planned: makes the memory plan, again where a
        worker is lost; posed_by: makes the problem, by the plan; stage: the name of its seconds.

        Raises MemoryBudgetError where there is no room, InterruptedRunError where the watch ends the run for it to be resumed.
        """
        checkpointer, seconds, plan = PathCheckpointer(run), dict[str, float](), planned()
        note_idle_workers(plan.plan)
        with checkpointer.committed_at_interrupt(watch, "stopped between two steps of a path"):
            began = time.perf_counter()
            posed = posed_by(plan)
            labels = None if codes is None else codes[posed.points]
            seconds[stage] = time.perf_counter() - began
            work = DenseWork(session, posed, plan.place, lambda: planned().place)
            held = HeldOutPart.of(posed, side, settings.gammas[-1], watch, work.call)
            # The held-out fit is at the last gamma: of a longer path the first is too far from it.
            begin, began = held.start if len(settings.gammas) == 1 else (), time.perf_counter()
            path = follow(posed, labels, settings.gammas, begin, work, checkpointer, watch)
            seconds["solve"] = time.perf_counter() - began
        return cls(run, settings, watch, checkpointer, plan, work, held, path, seconds)

    def store(self, arrays: Callable[[], dict[str, NDArray]], notes: Notes, **more: object) -> Result:
        """Write the model with its own `arrays`, the history and the report with its own entries `more`; return the result."""
        run, posed, path = self.run, self.work.data, self.path
        result = result_of(path, self.settings.tol, self.seconds, self.watch, self.plan.plan.as_dict())
        result = self.held.added_to(result, self.watch).placed(self.work.place.text)
        with blas_threads(self.plan.threads):
            model = {
                **arrays(),
                "touched": posed.points.astype(np.int64),
                "gammas": np.array([one.gamma for one in path]),
                "multipliers": np.stack([one.multipliers for one in path]),
            }
        run.write_arrays("model", {name: np.ascontiguousarray(values) for name, values in model.items()})
        write_history(run, result.history)
        if self.held.arrays and result.quality is not None:
            run.write_arrays("held_out", self.held.arrays)
        sizes = {"n_points": len(posed.points), "n_constraints": len(posed.constraints)}
        # Last: a run with a report is complete.
        run.write_report(notes(report_of(result, self.settings.as_dict(), **sizes, **more, outputs=outputs_of(path))))
        if result.outcome.converged:
            # Otherwise kept: a run that ended at a limit is continued from its gammas.
            self.checkpointer.folder.drop()
        return result


def fit_in_run(
    run: RunStore, rows: Rows, side: SideInformation, codes: Codes, settings: LogDetRunSettings, session: Session,
    watch: Watch, notes: Notes = dict, own_rows: int = 0,
) -> Result:  # fmt: skip
    """Fit a path of kernels in a run's folder, from rows (n, d) and as `SolvedPath.of`."""

    def planned() -> KernelPlan:
        sizes = sizes_of(side, settings.kernel, settings.loss, int(rows.shape[1]))
        return plan_kernel(sizes, settings, session, has_folder=True, own_rows=own_rows)

    made = list[PriorKernel]()

    def posed_by(plan: KernelPlan) -> GammaProblem:
        # For each part one number of threads, wherever it is done: another one rounds differently.
        with blas_threads(plan.threads):
            prior = prior_kernel(
                settings.kernel, rows, params=settings.kernel_params, n_neighbors=settings.n_neighbors, session=session,
                memory_limit=settings.memory_limit,
            )  # fmt: skip
            made.append(prior)
            return pose_kernel(prior, side, settings.changed(solver=plan.solver), settings.loss_params)

    solved = SolvedPath.of(run, side, codes, settings, session, watch, planned, posed_by, "kernel")
    (prior,), posed, began = made, solved.work.data, time.perf_counter()
    M = solved.work.call(learned_matrix, solved.path[-1])
    with blas_threads(solved.plan.threads):
        n = int(rows.shape[0])
        components = components_of(prior, n, posed.points, M, settings.n_components, settings.center)
        error = None if codes is None else neighbor_error(posed.base, codes[posed.points])
    solved.seconds["components"] = time.perf_counter() - began
    known = {"n_components": int(components.weights.shape[1]), "prior_error": error}
    return solved.store(lambda: {"M": M, **_model_arrays(prior, rows, posed.points, components)}, notes, **known)


def _model_arrays(
    prior: PriorKernel, rows: Rows, points: NDArray[np.intp], components: LeadingComponents
) -> dict[str, NDArray]:
    return {
        "basis": components.basis.astype(np.int64),
        "weights": components.weights,
        "weights_at_points": components.weights_at_points,
        "offset": components.offset,
        **_prior_arrays(prior, rows, points, components),
    }


def outputs_of(path: Path) -> list[dict[str, object]]:
    """Return what the report has of each gamma: its certificate, and what it took."""
    outputs = []
    for one in path:
        certificate = {
            name: float(getattr(one.certificate, name)) for name in ("objective", "bound", "gap", "relative_gap")
        }
        taken = {"n_iter": one.n_iter, "n_products": one.n_products, "solver": one.solver, "method": one.method}
        outputs.append({"gamma": one.gamma, "outcome": one.outcome.value, **certificate, **taken, "error": one.error})
    return outputs


def _prior_arrays(
    prior: PriorKernel, rows: Rows, points: NDArray[np.intp], components: LeadingComponents
) -> dict[str, NDArray]:
    """Return the arrays from which K0 is rebuilt: the matrix, the graph with its rows, or the basis rows."""
    if isinstance(prior, PrecomputedPrior):
        return {"prior": prior.matrix}
    if isinstance(prior, RowKernel):
        gamma = {} if prior.kernel.gamma is None else {"kernel_gamma": np.array([prior.kernel.gamma])}
        return point_arrays(rows[components.basis]) | gamma
    assert isinstance(prior, GraphKernel)
    # The weights at the basis and at the points as those of all rows: one product with K0.
    laplacian, folded = prior.graph_laplacian, np.zeros((prior.n, components.weights.shape[1]))
    folded[components.basis] = components.weights
    folded[points] += components.weights_at_points
    parts = {
        "laplacian": laplacian.data,
        "laplacian_indices": laplacian.indices.astype(np.int64),
        "laplacian_indptr": laplacian.indptr.astype(np.int64),
    }
    known = {"coordinates": prior.matrix @ folded - components.offset, "widths": prior.similarity.widths}
    return point_arrays(rows) | known | parts


# Checkpoints of a path of gammas in a run's folder: the solved ones, from which a resumed fit continues.

PerConstraint = Annotated[NDArray[np.float64], "constraint"]


@dataclass(frozen=True)
class PathPoint(LogDetSolution):
    """Solution at a gamma of the path, with its rows; error: of nearest labeled neighbors, None without labels."""

    multipliers: PerConstraint = field(repr=False)
    margins: PerConstraint = field(repr=False)
    certificate: LogDetCertificate
    rows: list[Row] = field(repr=False)
    error: float | None

    @classmethod
    def of(cls, solution: LogDetSolution, rows: list[Row], error: float | None) -> PathPoint:
        """Build from a solver's solution."""
        values = {part.name: getattr(solution, part.name) for part in fields(LogDetSolution)}
        return cls(**values, rows=rows, error=error)


Path = list[PathPoint]


def open_checkpoints(run: RunStore) -> CheckpointFolder:
    """Return the folder of a path that is under way."""
    return CheckpointFolder(run.path / "path", ARRAYS, "path", "the path")


class PathCheckpointer(StateCheckpointer[Path]):
    """Checkpointer of the solved gammas, a commit each: the next starts at the last of them."""

    def __init__(self, run: RunStore) -> None:
        super().__init__(run, 1, open_checkpoints(run), Path, [])

    def resume(self, gammas: list[float], n_constraints: int) -> Path:
        """Return the stored solutions of the path's first gammas; [] for another path or other constraints."""
        is_known = [point.gamma for point in self.state] == gammas[: len(self.state)]
        if not is_known or any(point.multipliers.shape != (n_constraints,) for point in self.state):
            self.state = []
        return list(self.state)

    def on_solution(self, point: PathPoint) -> None:
        """Commit one more solution; one that is not SOLVED is not stored, but solved again on resuming."""
        if point.outcome is Outcome.SOLVED:
            self.state = [*self.state, point]
            self.step_done(at_end=True)

    def log_entries(self, state: Path) -> dict[str, object]:
        """Return the number of solved gammas."""
        return {"gammas": len(state)}


def fit_metric_in_run(
    run: RunStore, rows: Matrix, side: SideInformation, settings: LogDetMetricRunSettings, session: Session, watch: Watch,
    notes: Notes = dict, own_rows: int = 0,
) -> Result:  # fmt: skip
    """Fit a path of metrics in a run's folder, from dense rows (n, d) and as `SolvedPath.of`; own_rows: bytes of them as read."""

    def planned() -> KernelPlan:
        sizes = sizes_of(side, settings.kernel, settings.loss, int(rows.shape[1]))
        return plan_metric(sizes, settings, session, own_rows)

    def posed_by(plan: KernelPlan) -> GammaProblem:
        W0 = prior_metric(settings.prior, rows)
        return pose_metric(rows, W0, side, settings.changed(solver=plan.solver), settings.loss_params)

    solved = SolvedPath.of(run, side, None, settings, session, watch, planned, posed_by, "prior")
    W = solved.work.call(GammaProblem.learned, solved.path[-1])
    with blas_threads(solved.plan.threads):
        whole = metric_components(W)
        components = solved.work.data.cut(whole)
    found = {"components": components, "prior": solved.work.data.W0, "points": rows[sampled(len(rows))]}
    if settings.n_components is None:
        return solved.store(lambda: found, notes)
    return solved.store(lambda: found | {"whole_components": whole}, notes, n_components=len(components))


def load_metric(run: RunStore) -> LogDetMetricLearner:
    """Load a run's fitted learner, at its path's last gamma; StoreError for parts that do not match."""
    settings, found = metric_settings_in(run), run.read_arrays("model")
    check_metric_model(run, found)
    last = run.report()["outputs"][-1]
    learner = remade(
        LogDetMetricLearner, LogDetMetricSettings, {**run.config["settings"], "gamma": settings.gammas[-1]},
        loss_params=settings.loss_params or None,
    )  # fmt: skip
    learner.components_ = found["components"]
    learner._prior_metric, learner._rows_kept = found["prior"], found["points"]
    learner._n_rows, learner.n_features_in_ = trained_on(run)
    learner.scale_ = read_scale(run)
    learner.result_ = result_in(run, read_history(run))
    learner.certificate_ = LogDetCertificate(float(last["objective"]), float(last["bound"]))
    learner.n_iter_, learner.solver_ = int(last["n_iter"]), str(last["solver"])
    learner.method_ = str(last["method"])
    return learner

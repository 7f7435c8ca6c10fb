"""Fit under hard constraints in a run's folder: rows and problem once, the solver's state, the kernel and what proves it at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, point_arrays, read_points, report_of, result_in, trained_on
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.qsdp.basis.hard import HardProblem, HardSolution, basis_of
from dkl.estimators.qsdp.basis.hard_checkpoint import HardCheckpointer
from dkl.estimators.qsdp.basis.model import PARTS, read_model, similarity_of
from dkl.problems.qsdp.linear import SDPCertificate
from dkl.solvers.qsdp.augmented import LinearSDPSolution

if TYPE_CHECKING:
    from dkl.estimators.qsdp.basis.learner import BasisLearner
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import BasisSettings
    from dkl.linalg.rows import Rows
    from dkl.solvers.watch import Watch
    from dkl.stores.run import RunStore

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
        found = posed.solved(rows, plan, watch, checkpointer)
        if not watch.is_interrupted:
            found = posed.with_quality(found, rows, plan, watch)
    model = {"Q": found.basis.Q, "Y": found.Y, "embedding": found.embedding, "dual": found.solution.dual}
    run.write_arrays("model", {**model, **posed.model(found)})
    if found.held_out:
        run.write_arrays("held_out", found.held_out)
    if not found.result.outcome.converged:
        checkpointer.commit_rest()  # for a later resume
    run.write_report(notes(_report(posed, found, settings)))
    if found.result.outcome.converged:
        checkpointer.folder.drop()
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
    similarity = similarity_of(np.array(found["widths"]), n, settings, run)
    try:
        return kind.again(n, found, similarity, settings)
    except KeyError as error:
        raise StoreError(WHAT, where=where, got=", ".join(sorted(found)), wanted=f"{error} too") from error
    except InputError as error:
        what = f"{WHAT}: {error.what}"
        raise StoreError(what, where=f"{where}/{error.where}", got=error.got, wanted=error.wanted) from error


def _report(posed: HardProblem, found: HardSolution, settings: BasisSettings) -> dict[str, object]:
    certificate, result, y = found.certificate, found.result, found.solution.dual
    return report_of(
        result, settings.as_dict(), n_basis=len(found.Y), n_components=int(found.embedding.shape[1]), **posed.told(),
        face=found.solution.face, dual_value=float(posed.problem.b @ y), dual_size=float(np.abs(y).sum()),
        certificate={name: float(getattr(certificate, name)) for name in CERTIFICATE}, history=result.history,
    )  # fmt: skip


def load_hard(run: RunStore, learner: Callable[..., E], kind: type[HardProblem]) -> E:
    """Restore a learner of this class, and its problem of this kind, from a run; StoreError for parts that do not fit together."""
    stored, declared = run.config["settings"], learner.SETTINGS  # type: ignore[attr-defined]
    posed, (rows, model) = problem_in(run, kind, declared(**stored)), read_model(run)
    if "Q" not in model or "dual" not in model or len(model["dual"]) != posed.problem.p:
        raise StoreError("a model and constraints that do not fit together", where=str(run.path))
    told, result = run.report()["certificate"], result_in(run)
    proof = SDPCertificate(**{name: float(told[name]) for name in CERTIFICATE})
    Q, Y = model["Q"], model["Y"]
    solution = LinearSDPSolution(
        result.outcome, Q * np.sqrt(np.maximum(np.diagonal(Y), 0.0)), model["dual"], proof, result.n_iter, result.n_iter,
        run.report()["face"],
    )  # fmt: skip
    basis = basis_of(np.ascontiguousarray(Q), posed.laplacian, posed.similarity)
    made = remade(learner, declared, stored)
    made.n_features_in_, made.scale_ = int(rows.shape[1]), read_scale(run)
    made._keep_hard(rows, HardSolution(basis, Y, model["embedding"], solution, result), posed)
    return made

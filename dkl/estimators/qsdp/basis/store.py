"""Fit in a smooth basis in a run's folder: rows and basis once, the solver's state, the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dkl.blocks.memory_plan import note_idle_workers
from dkl.blocks.workers.dense_work import DenseWork
from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, point_arrays, read_points, report_of, result_in, trained_on
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.qsdp.basis.checkpoint import BasisCheckpointer, write_end
from dkl.estimators.qsdp.basis.fit import Basis, BasisProblem, BasisSolution, solve_basis
from dkl.estimators.qsdp.basis.model import PARTS, read_model, similarity_of
from dkl.problems.qsdp.certificate import QSDPCertificate
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.blocks.memory_plan import Plan
    from dkl.blocks.session import Session
    from dkl.blocks.workers.dense_work import DensePlace
    from dkl.estimators.qsdp.basis.learner import BasisLearner
    from dkl.estimators.qsdp.settings import BasisSettings
    from dkl.linalg.rows import Rows

P = TypeVar("P", bound=BasisProblem)
E = TypeVar("E", bound="BasisLearner")
WHAT = "a basis whose parts do not fit together"


def posed_in(run: RunStore, kind: type[P], settings: BasisSettings) -> P:
    """Rebuild the problem of a run from its stored arrays; StoreError if missing or incomplete."""
    found, where = run.read_arrays("basis"), f"{run.path}/basis"
    check_lengths(run, "basis", found, WHAT, where, sample=trained_on(run)[0], one=1)
    if not {"Q", "values", "found"} <= found.keys():
        raise StoreError(WHAT, where=where, got=", ".join(sorted(found)), wanted="Q, values and found")
    n, m = found["Q"].shape
    # The graph has n eigenvectors, one of them constant: a wider Q is another run's.
    if not 0 < m < n:
        raise StoreError(WHAT, where=where, got=f"Q {(n, m)}")
    # Aligned and row by row, as what was made here: BLAS rounds by that.
    found = {name: np.array(values, order="C") for name, values in found.items()}
    similarity = similarity_of(found["widths"], n, settings, run)
    basis = Basis(found["Q"], found["values"], float(found["found"][0]), "kept", similarity)
    try:
        return kind.restored(basis, found, settings)
    except InputError as error:
        what = f"{WHAT}: {error.what}"
        raise StoreError(what, where=f"{where}/{error.where}", got=error.got, wanted=error.wanted) from error


def fit_in_run(
    run: RunStore,
    kind: type[P],
    make: Callable[[], tuple[Rows, P]],
    settings: BasisSettings,
    placed: Callable[[], tuple[Plan, DensePlace]],
    session: Session,
    watch: Watch,
    notes: Callable[[dict[str, object]], dict[str, object]] = dict,
) -> BasisSolution:
    """Fit in a run's folder, resumed from the stored basis and state; bit-identical to an undisturbed fit.

    placed: the plan, and the place to solve in. make: (rows (n, d), the problem), where nothing is kept or it is damaged. A kill costs
    what came after the last commit and the step under way, on a worker up to some seconds more; a conic solver's work as a whole. Raises
    InterruptedRunError where the watch ends the run for it to be resumed.
    """
    checkpointer = BasisCheckpointer(run, settings.checkpoint_every)
    with checkpointer.committed_at_interrupt(watch, "stopped between two steps"):
        plan, place = placed()
        note_idle_workers(plan)
        posed = _posed(run, kind, make, settings)
        work = DenseWork(session, posed, place, lambda: placed()[1])
        found = solve_basis(work, settings, watch, checkpointer).planned(plan.as_dict())
    # Of the rows as stored, which a resumed run has too: `make` may not have been called.
    found = posed.with_quality(found, read_points(run.read_arrays("rows"), f"{run.path}/rows"), watch)
    run.write_arrays("model", {"Y": found.Y, "embedding": found.embedding, "dual": found.solution.dual})
    write_end(run, found.result, found.held_out, notes(_report(posed, found, settings)), checkpointer)
    return found


def _posed(run: RunStore, kind: type[P], make: Callable[[], tuple[Rows, P]], settings: BasisSettings) -> P:
    try:
        for part in PARTS:
            run.check_part(part, whole=True)
        return posed_in(run, kind, settings)
    except StoreError:  # not there yet, or damaged: the rows have all that it is made from
        rows, posed = make()
    basis = posed.basis
    # Rows first, the basis last: where both are there and sealed, nothing is missing.
    run.write_arrays("rows", point_arrays(rows))
    shared = {
        "Q": basis.Q,
        "values": basis.values,
        "found": np.array([basis.residual]),
        "widths": basis.similarity.widths,
    }
    run.write_arrays("basis", {**shared, **posed.arrays()})
    return posed


def _report(posed: BasisProblem, found: BasisSolution, settings: BasisSettings) -> dict[str, object]:
    certificate, result = found.solution.certificate, found.result
    numbers: dict[str, object] = {name: float(getattr(certificate, name)) for name in CERTIFICATE}
    known = {"n_basis": len(found.Y), "n_components": int(found.embedding.shape[1]), "residual": posed.basis.residual}
    numbers["dimacs"] = [float(error) for error in certificate.dimacs]
    own = {**known, **posed.report_entries(), "certificate": numbers, "history": result.history}
    return report_of(result, settings.as_dict(), **own)


CERTIFICATE = ("objective", "bound", "gap", "size", "relative_gap", "min_eigenvalue")
"""Names of the certificate's numbers, the DIMACS errors aside."""


def certificate_in(run: RunStore) -> QSDPCertificate:
    """Return the certificate of a complete run."""
    numbers = run.report()["certificate"]
    dimacs = tuple(float(error) for error in numbers["dimacs"])
    if len(dimacs) != 6:
        raise StoreError("a damaged certificate", where=f"{run.path}/report.json", got=len(dimacs), wanted="six errors")
    return QSDPCertificate(**{name: float(numbers[name]) for name in CERTIFICATE}, dimacs=dimacs)


def keep_in(learner: BaseEstimator, run: RunStore, posed: BasisProblem) -> None:
    """Give an estimator what a complete run has learned; StoreError for parts that do not fit together."""
    rows, found = read_model(run)
    m = posed.basis.Q.shape[1]
    if found["Y"].shape != (m, m):
        raise StoreError("a model and a basis that do not fit together", where=str(run.path), got=found["Y"].shape)
    learner.n_features_in_, learner.scale_ = int(rows.shape[1]), read_scale(run)
    learner._keep(rows, posed, found["Y"], found["embedding"], certificate_in(run), result_in(run))


def load_basis_learner(run: RunStore, learner: Callable[..., E], kind: type[BasisProblem]) -> E:
    """Restore a learner of this class, and its problem of this kind, from a run; StoreError for parts that do not fit together."""
    stored, declared = run.config["settings"], learner.SETTINGS  # type: ignore[attr-defined]
    posed, made = posed_in(run, kind, declared(**stored)), remade(learner, declared, stored)
    keep_in(made, run, posed)
    return made

"""Unfolding under hard distances in a run's folder: rows and distances once, the kernel and what proves it at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, point_arrays, read_points, report_of, result_in, trained_on
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.qsdp.basis.hard import HardSolution, basis_of
from dkl.estimators.qsdp.basis.model import PARTS, read_model, similarity_of
from dkl.estimators.qsdp.mvu.hard import HardCheckpointer, PosedDistances, solved_distances, with_quality
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.faces import cliques_of
from dkl.problems.qsdp.linear import SDPCertificate
from dkl.solvers.qsdp.augmented import LinearSDPSolution

if TYPE_CHECKING:
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.mvu.learner import MaximumVarianceUnfolding
    from dkl.linalg.rows import Rows
    from dkl.solvers.watch import Watch
    from dkl.stores.run import RunStore

WHAT = "distances whose parts do not fit together"
CERTIFICATE = ("objective", "bound", "gap", "relative_gap", "infeasibility", "min_eigenvalue")
"""Names of the certificate's numbers."""


def fit_hard_in_run(
    run: RunStore,
    make: Callable[[], tuple[Rows, PosedDistances]],
    settings: UnfoldingSettings,
    planned: Callable[[int], HardPlan],
    watch: Watch,
    notes: Callable[[dict[str, object]], dict[str, object]] = dict,
) -> HardSolution:
    """Unfold in a run's folder, resumed from the stored distances and state; bit-identical to an undisturbed fit.

    planned: the plan, by the bytes of the rows. make: (rows (n, d), their neighbors' distances), where nothing is kept or it is damaged.
    Raises InterruptedRunError where the watch ends the run for it to be resumed.
    """
    checkpointer = HardCheckpointer(run, settings.checkpoint_every)
    with checkpointer.committed_at_interrupt(watch, "stopped between two steps"):
        posed = _posed(run, make, settings)
        checkpointer.keep_if_of(posed.n, len(posed.edges))
        kept = run.read_arrays("rows")
        rows = read_points(kept, f"{run.path}/rows")
        found = solved_distances(
            rows, posed, planned(sum(part.nbytes for part in kept.values())), settings, watch, checkpointer
        )
    found = with_quality(found, rows, settings, watch)
    run.write_arrays("model", _model(posed, found))
    if not found.result.outcome.converged:
        checkpointer.commit_rest()  # for a later resume
    run.write_report(notes(_report(posed, found, settings)))
    if found.result.outcome.converged:
        checkpointer.folder.drop()
    return found


def _posed(
    run: RunStore, make: Callable[[], tuple[Rows, PosedDistances]], settings: UnfoldingSettings
) -> PosedDistances:
    try:
        for part in PARTS:
            run.check_part(part, whole=True)
        return distances_in(run, settings)
    except StoreError:  # not there yet, or damaged: the rows have all that it is made from
        rows, posed = make()
    run.write_arrays("rows", point_arrays(rows))
    edges, widths = posed.edges.astype(np.int64), posed.similarity.widths
    run.write_arrays("basis", {"edges": edges, "squared": posed.squared, "widths": widths})
    return posed


def distances_in(run: RunStore, settings: UnfoldingSettings) -> PosedDistances:
    """Return the distances that a run keeps; StoreError if missing or not valid."""
    found, where, n = run.read_arrays("basis"), f"{run.path}/basis", trained_on(run)[0]
    check_lengths(run, "basis", found, WHAT, where, sample=n, one=1)
    try:
        edges = checks.edges(found["edges"], n)
        squared = np.ascontiguousarray(checks.edge_lengths(found["squared"], len(edges)))
    except InputError as error:
        what = f"{WHAT}: {error.what}"
        raise StoreError(what, where=f"{where}/{error.where}", got=error.got, wanted=error.wanted) from error
    similarity = similarity_of(np.array(found["widths"]), n, settings, run)
    return PosedDistances(n, np.ascontiguousarray(edges.astype(np.intp)), squared, similarity)


def _model(posed: PosedDistances, found: HardSolution) -> dict[str, NDArray]:
    """Return the kernel, the multipliers, and the cliques of the face that the bound is of."""
    model: dict[str, NDArray] = {
        "Q": found.basis.Q, "Y": found.Y, "embedding": found.embedding, "dual": found.solution.dual,
    }  # fmt: skip
    if found.solution.face is not None:
        cliques = cliques_of(posed.n, posed.edges)
        model["cliques"] = np.array([row for clique in cliques for row in clique], np.int64)
        model["clique_sizes"] = np.array([len(clique) for clique in cliques], np.int64)
    return model


def _report(posed: PosedDistances, found: HardSolution, settings: UnfoldingSettings) -> dict[str, object]:
    certificate, result, y = found.certificate, found.result, found.solution.dual
    return report_of(
        result, settings.as_dict(), n_basis=len(found.Y), n_components=int(found.embedding.shape[1]), n_edges=len(posed.edges),
        face=found.solution.face, dual_value=float(posed.squared @ y), dual_size=float(np.abs(y).sum()),
        certificate={name: float(getattr(certificate, name)) for name in CERTIFICATE}, history=result.history,
    )  # fmt: skip


def load_hard(run: RunStore, learner: type[MaximumVarianceUnfolding]) -> MaximumVarianceUnfolding:
    """Restore a learner whose distances were constraints; StoreError for parts that do not fit together."""
    stored = run.config["settings"]
    posed, (rows, model) = distances_in(run, UnfoldingSettings(**stored)), read_model(run)
    if "Q" not in model or "dual" not in model or len(model["dual"]) != len(posed.edges):
        raise StoreError("a model and distances that do not fit together", where=str(run.path))
    told, result = run.report()["certificate"], result_in(run)
    proof = SDPCertificate(**{name: float(told[name]) for name in CERTIFICATE})
    Q, Y = model["Q"], model["Y"]
    solution = LinearSDPSolution(
        result.outcome, Q * np.sqrt(np.maximum(np.diagonal(Y), 0.0)), model["dual"], proof, result.n_iter, result.n_iter,
        run.report()["face"],
    )  # fmt: skip
    basis = basis_of(np.ascontiguousarray(Q), posed.laplacian, posed.similarity)
    made = remade(learner, UnfoldingSettings, stored)
    made.n_features_in_, made.scale_ = int(rows.shape[1]), read_scale(run)
    made._keep_distances(rows, HardSolution(basis, Y, model["embedding"], solution, result), posed)
    return made

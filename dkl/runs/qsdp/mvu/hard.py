"""Runs of unfolding under hard distances: what they take, their fit and the lines on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkl.blocks.graph.graph_plan import plan_graph
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.qsdp.basis.checkpoint import open_checkpoints
from dkl.estimators.qsdp.basis.model import is_posed
from dkl.estimators.qsdp.basis.plan import COLUMNS, INSIDE, HardPlan, plan_unfolding
from dkl.problems.qsdp.faces import MOST_CLIQUES
from dkl.runs import report
from dkl.runs.estimate import flops_a_second, own_rows
from dkl.runs.kind import Estimate, Notes
from dkl.runs.output.predictions import applied_bytes, graph_needs, with_later
from dkl.runs.qsdp.basis import note_damage
from dkl.solvers.qsdp.interior import MOST_TERMS

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.mvu.hard import PosedDistances
    from dkl.estimators.qsdp.settings import UnfoldingSettings
    from dkl.linalg.rows import Rows
    from dkl.runs.inputs.files import Lazy
    from dkl.runs.qsdp.mvu.kind import UnfoldingInputs
    from dkl.solvers.result import Result
    from dkl.solvers.watch import Watch
    from dkl.stores.run import RunStore
    from dkl.stores.sealed_json import Json


def plan_run(found: UnfoldingInputs, settings: UnfoldingSettings, session: Session) -> Plan:
    """Return the plan of a run and of what follows it; MemoryBudgetError where one does not fit."""
    n, d, own, place = found.rows.n, found.rows.n_features, own_rows(found.rows), Place.of(session)
    made = plan_unfolding(n, d, settings, session, own).plan
    needs = graph_needs(n, d, settings.n_components, settings.n_neighbors)
    graph = plan_graph(n, d, 8, max(1, min(settings.n_neighbors, n - 1)), None, is_joined=True)
    later = {
        "dkl transform": applied_bytes(needs, found.rows, place),
        "dkl verify": 3 * own + int(graph["peak"]) + 8 * 3 * n * min(n, COLUMNS),
    }
    return with_later(made, place, settings.memory_limit, later)


def disk_bytes(found: UnfoldingInputs, settings: UnfoldingSettings, plan: Plan) -> int:
    """Return bytes of rows, distances, multipliers, the kernel, the cliques of a face, and two states of a method."""
    n, k = found.rows.n, min(settings.n_neighbors, found.rows.n - 1)
    is_inside = INSIDE in plan.items
    columns, cliques = n if is_inside else min(n, COLUMNS), 8 * MOST_CLIQUES * n * (k + 2) if is_inside else 0
    kept = own_rows(found.rows) + 8 * n * (columns + settings.n_components) + 8 * columns**2
    states = 2 * 8 * (3 * columns * n + (2 * columns**2 if is_inside else 0) + 3 * n * k)
    return kept + 40 * n * k + cliques + states


def estimate(found: UnfoldingInputs, settings: UnfoldingSettings, plan: Plan) -> Estimate:
    """Return sizes, the method and its seconds, for `dkl plan`."""
    n, d = found.rows.n, found.rows.n_features
    terms = n * min(settings.n_neighbors, n - 1)
    before = f"{n:,} rows, {d:,} features; up to {terms:,} distances as constraints of a kernel on all rows"
    if INSIDE not in plan.items:
        after = ["an augmented Lagrangian of a factor: seconds of a round depend on the data;"]
        return Estimate([before], [*after, f"up to {settings.max_iter} rounds, commonly 10 to 60"])
    p = min(terms, MOST_TERMS)
    # Two products with the face, and a factor, of p constraints.
    seconds = (4 * p * p * n + p**3 / 3) / flops_a_second()
    after = [f"about {seconds:.2g} s a step of the interior point, by a product that was measured here;"]
    return Estimate(
        [before],
        [*after, f"up to {settings.max_iter} steps, commonly 15 to 60, where factors of few columns do not suit"],
    )


def fit(
    run: RunStore,
    found: Lazy[UnfoldingInputs],
    settings: UnfoldingSettings,
    session: Session,
    watch: Watch,
    notes: Notes = dict,
) -> Result:
    """Fit or resume the run, and store its result and report."""
    from dkl.estimators.qsdp.mvu.hard import PosedDistances
    from dkl.estimators.qsdp.mvu.hard_store import fit_hard_in_run

    n, d = trained_on(run)

    def planned(own: int) -> HardPlan:
        return plan_unfolding(n, d, settings, session, own)

    if not is_posed(run):
        planned(own_rows(found().rows))

    def make() -> tuple[Rows, PosedDistances]:
        note_damage(run)
        given = found()
        found.release()  # once the rows are kept they are needed no more
        rows = given.rows.read(0, given.rows.n)
        return rows, PosedDistances.of(rows, settings, session, PROCESS_BASE + own_rows(given.rows))

    return fit_hard_in_run(run, make, settings, planned, watch, notes).result


def kept_step(run: RunStore) -> int | None:
    """Return the step of the method's state that is kept, or None."""
    from dkl.estimators.qsdp.mvu.hard import HardCheckpoint

    _, kept = open_checkpoints(run).load(HardCheckpoint)
    return None if kept is None else kept.state.iteration


def result_lines(found: Json) -> dict[str, str]:
    """Return lines on the result from a report."""
    certificate, face = found["certificate"], found["face"]
    return {
        "rank of the kernel": f"{found['n_basis']:,}",
        "edges": f"{found['n_edges']:,}   {'kept' if found['settings']['constraints'] == 'hard' else 'none becomes longer'}",
        "steps": str(found["n_iter"]),
        **report.certificate(certificate),
        "infeasibility": f"{certificate['infeasibility']:.3g}",
        "bound proven": "of all kernels" if face is None else f"on the face of size {face:,} that cliques leave",
        "components": str(found["n_components"]),
        **report.placement(found),
    }

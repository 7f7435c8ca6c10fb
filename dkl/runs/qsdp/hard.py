"""Common base of the runs of learners in a smooth basis whose constraints may be hard."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from dkl.blocks.graph.neighbor_search import plan_graph
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.qsdp.basis.checkpoint import open_checkpoints
from dkl.estimators.qsdp.basis.model import is_posed
from dkl.estimators.qsdp.basis.plan import COLUMNS, INSIDE
from dkl.problems.qsdp.linear import MOST_CLIQUES
from dkl.runs import report
from dkl.runs.estimate import flops_a_second, own_rows
from dkl.runs.predictions import applied_bytes, graph_needs, with_later
from dkl.runs.qsdp.basis import BasisRuns, I, S, note_damage
from dkl.runs.registry import Estimate, Notes
from dkl.runs.stored import settings_of

if TYPE_CHECKING:
    from dkl.blocks.session import Session
    from dkl.estimators.qsdp.basis.hard import HardProblem
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.linalg.rows import Rows
    from dkl.runs.inputs.files import Lazy
    from dkl.solvers.watch import Result, Watch
    from dkl.stores.run import RunStore
    from dkl.stores.seals import Json


REMEDIES = {
    "stalled": "steps no longer come nearer: raise --tol",
    "numerical_error": "a value stopped being finite: scale the rows",
}
"""Remedies under hard constraints: no conic solver is taken for them, and no weights of pairs."""


class HardRuns(BasisRuns[S, I]):
    """Base of runs for which a learner also supplies its problem under hard constraints, a `HardProblem`."""

    hard_terms: str
    """Name of that which the constraints are of, in the plan."""

    @abstractmethod
    def hard_plan(self, n: int, d: int, n_pairs: int, settings: S, session: Session, own: int) -> HardPlan:
        """Return the plan of n rows of d features and `own` bytes; MemoryBudgetError where it does not fit."""

    @abstractmethod
    def hard_problems(self) -> type[HardProblem]:
        """Return the learner's class of problems under hard constraints."""

    @abstractmethod
    def pose_hard(self, rows: Rows, found: I, settings: S, session: Session, bytes_used: int) -> HardProblem:
        """Return the problem for rows (n, d) in memory; bytes_used: bytes of the limit that are already in use."""

    @abstractmethod
    def hard_lines(self, found: Json) -> dict[str, str]:
        """Return lines on the constraints from a report."""

    def plan(self, found: I, settings: S, session: Session) -> Plan:
        """Return the plan of a run and of what follows it; MemoryBudgetError where one does not fit."""
        if not settings.is_hard:
            return super().plan(found, settings, session)
        n, d, own, place = found.rows.n, found.rows.n_features, own_rows(found.rows), Place.of(session)
        made = self.hard_plan(n, d, found.n_pairs, settings, session, own).plan
        # The rank of the kernel is not known before the fit: coordinates have as many columns as the plan counts with.
        needs = graph_needs(n, d, getattr(settings, "n_components", min(n, COLUMNS)), settings.n_neighbors)
        graph = plan_graph(n, d, 8, max(1, min(settings.n_neighbors, n - 1)), None, is_joined=True)
        later = {
            "dkl transform": applied_bytes(needs, found.rows, place),
            "dkl verify": 3 * own + int(graph["peak"]) + 8 * 3 * n * min(n, COLUMNS),
        }
        return with_later(made, place, settings.memory_limit, later)

    def disk_bytes(self, found: I, settings: S, plan: Plan) -> int:
        """Return bytes of rows, constraints, multipliers, the kernels, the cliques of a face, and two states of a method."""
        if not settings.is_hard:
            return super().disk_bytes(found, settings, plan)
        n, k = found.rows.n, min(settings.n_neighbors, found.rows.n - 1)
        is_inside, terms = INSIDE in plan.items, n * k + found.n_pairs
        columns, cliques = n if is_inside else min(n, COLUMNS), 8 * MOST_CLIQUES * n * (k + 2) if is_inside else 0
        kept = (
            own_rows(found.rows) + 8 * n * (2 * columns + getattr(settings, "n_components", columns)) + 8 * columns**2
        )
        # Two states at a time: a commit writes the new one whole before the old one is removed.
        states = 2 * 8 * (3 * columns * n + (2 * columns**2 if is_inside else 0) + 3 * terms)
        return kept + 40 * terms + cliques + states

    def estimate(self, found: I, settings: S, plan: Plan, session: Session) -> Estimate:
        """Return sizes, the method and its seconds, for `dkl plan`."""
        from dkl.solvers.qsdp.interior import MOST_TERMS  # with a solver, for which `dkl info` does not wait

        if not settings.is_hard:
            return super().estimate(found, settings, plan, session)
        n, d = found.rows.n, found.rows.n_features
        terms = self.terms(n, found.n_pairs, settings)
        before = f"{n:,} rows, {d:,} features; up to {terms:,} {self.hard_terms} as constraints of a kernel on all rows"
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
        self, run: RunStore, found: Lazy[I], settings: S, session: Session, watch: Watch, notes: Notes = dict
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        if not settings.is_hard:
            return super().fit(run, found, settings, session, watch, notes)
        from dkl.estimators.qsdp.basis.hard import fit_hard_in_run

        (n, d), pairs = trained_on(run), int(str(run.config.get("n_pairs", 0)))

        def planned(own: int) -> HardPlan:
            return self.hard_plan(n, d, pairs, settings, session, own)

        # Refused before any row is read where it does not fit; with stored rows `fit_hard_in_run` plans by their own bytes.
        if not is_posed(run):
            planned(own_rows(found().rows))

        def make() -> tuple[Rows, HardProblem]:
            note_damage(run)
            given = found()
            found.release()  # once the rows are kept they are needed no more
            rows = given.rows.read(0, given.rows.n)
            return rows, self.pose_hard(rows, given, settings, session, PROCESS_BASE + own_rows(given.rows))

        return fit_hard_in_run(run, self.hard_problems(), make, settings, planned, watch, notes).result

    def remedies(self, run: RunStore) -> dict[str, str]:
        """Return the remedies of the form that the run is of."""
        return {**super().remedies(run), **(REMEDIES if settings_of(run, {}).is_hard else {})}

    def kept_step(self, run: RunStore) -> int | None:
        """Return the step of the solver's state that is kept, or None."""
        if not settings_of(run, {}).is_hard:
            return super().kept_step(run)
        from dkl.estimators.qsdp.basis.hard import HardCheckpoint

        # Another class than that of the soft form: the folder is the same, what is in it is not.
        _, kept = open_checkpoints(run).load(HardCheckpoint)
        return None if kept is None else kept.state.iteration

    def result_lines(self, found: Json) -> dict[str, str]:
        """Return lines on the result from a report."""
        if found["settings"].get("constraints", "soft") == "soft":
            return super().result_lines(found)
        certificate, face = found["certificate"], found["face"]
        return {
            "rank of the kernel": f"{found['n_basis']:,}",
            **self.hard_lines(found),
            "steps": str(found["n_iter"]),
            **report.certificate(certificate),
            "infeasibility": f"{certificate['infeasibility']:.3g}",
            "bound proven": "of all kernels" if face is None else f"on the face of size {face:,} that cliques leave",
            "components": str(found["n_components"]),
            **report.placement(found),
        }

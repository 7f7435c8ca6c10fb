"""Plans of learners in the basis of smooth eigenvectors, made before any work starts."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from dkl.blocks.graph.graph_plan import plan_graph
from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import Plan
from dkl.blocks.session import Session
from dkl.estimators.qsdp.basis.plan import BASES, BasisSizes, plan_basis
from dkl.estimators.qsdp.basis.settings import BasisSettings, basis_size
from dkl.runs.estimate import flops_a_second, own_rows
from dkl.runs.inputs.row_files import check_values
from dkl.runs.output.prediction_plan import applied_bytes, graph_needs, with_later
from dkl.runs.planner import Estimate, Planner
from dkl.runs.qsdp.basis_inputs import BasisInputs
from dkl.solvers.qsdp.steps import JOINT

PRODUCTS = 100
"""Approximate number of conjugate gradients' products in a step of Newton's method."""

S = TypeVar("S", bound=BasisSettings)
I = TypeVar("I", bound=BasisInputs)  # noqa: E741  # of inputs


class BasisPlanner(Planner[S, I]):
    """Base of planners for which a learner supplies the number of squares in its objective."""

    @abstractmethod
    def terms(self, n: int, n_pairs: int, settings: S) -> int:
        """Return an upper bound on the number of squares in the objective for n rows."""

    def sizes(self, found: I, settings: S) -> BasisSizes:
        """Return the sizes of the fit of these inputs."""
        return self.sizes_of(found.rows.n, found.rows.n_features, found.n_pairs, settings)

    def sizes_of(self, n: int, d: int, n_pairs: int, settings: S) -> BasisSizes:
        """Return the sizes of a fit of n rows with d features and `n_pairs` pairs."""
        m = basis_size(settings.n_basis, n, "--n-basis")
        return BasisSizes(n, d, m, self.terms(n, n_pairs, settings), first=1)

    def plan(self, found: I, settings: S, session: Session) -> Plan:
        """Return the memory plan; MemoryBudgetError names the largest basis that fits."""
        sizes, own, place = self.sizes(found, settings), own_rows(found.rows), Place.of(session)
        made = plan_basis(sizes, settings, session, own)
        needs = graph_needs(sizes.n, sizes.d, sizes.m, settings.n_neighbors)
        later = {
            "dkl transform": applied_bytes(needs, found.rows, place),
            "dkl verify": _verified(sizes, settings, own),
        }
        return with_later(made, place, settings.memory_limit, later)

    def disk_bytes(self, found: I, settings: S, plan: Plan) -> int:
        """Return bytes of rows, basis, terms, the result and that without held-out pairs, two solver states."""
        sizes = self.sizes(found, settings)
        columns = min(sizes.m, getattr(settings, "n_components", sizes.m))
        kept = own_rows(found.rows) + 8 * sizes.n * (sizes.m + columns) + 48 * sizes.terms
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


def _verified(sizes: BasisSizes, settings: BasisSettings, own: int) -> int:
    """Return the bytes of `dkl verify`: rows, the stored rows, the recomputed graph, and the basis."""
    k = max(1, min(settings.n_neighbors, sizes.n - 1))
    graph = plan_graph(sizes.n, sizes.d, 8, k, None, is_joined=bool(sizes.first))
    return 3 * own + int(graph["peak"]) + BASES * 8 * sizes.n * sizes.m

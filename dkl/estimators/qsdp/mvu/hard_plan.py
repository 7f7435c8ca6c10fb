"""Memory plan of an unfolding under hard distances."""

from __future__ import annotations

from dkl.blocks.session import Session
from dkl.estimators.qsdp.basis.hard_plan import HardPlan, plan_hard
from dkl.estimators.qsdp.mvu.settings import UnfoldingSettings
from dkl.solvers.qsdp.interior import MOST_TERMS


def plan_unfolding(n: int, d: int, settings: UnfoldingSettings, session: Session, own_rows: int = 0) -> HardPlan:
    """Return the plan of unfolding n rows of d features; MemoryBudgetError where it does not fit. own_rows: see `plan_hard`."""
    terms, inside = n * min(settings.n_neighbors, n - 1), MOST_TERMS if settings.constraints == "hard" else 0
    return plan_hard(n, d, terms, settings, session, own_rows, inside)

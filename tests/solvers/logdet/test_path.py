"""Paths of problem (3): where each gamma begins, and that no beginning is worse than the solution before."""

from dataclasses import replace

import numpy as np
import pytest
from logdet_cases import kernel, triplets
from repeats import but_for

from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import LogLoss, SmoothedHingeLoss
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.solvers.logdet.path import narrowing_losses
from dkl.solvers.logdet.solve import solve_logdet, solve_logdet_path
from dkl.solvers.watch import Outcome

OCTAVES = [2.0**e for e in range(-8, 13)]


class BarrierLoss:
    """x - log x of margins x > 0: F is infinite where a margin is not positive, and every slope below 1 has an inverse."""

    lowest = 1.0

    def value(self, margins):
        inside = margins > 0
        return np.where(inside, margins - np.log(np.where(inside, margins, 1.0)), np.inf)

    def first(self, margins):
        return 1.0 - 1.0 / np.where(margins > 0, margins, 1.0)

    def second(self, margins):
        return 1.0 / np.where(margins > 0, margins, 1.0) ** 2

    def margins_of(self, slopes):
        return np.where(slopes < 1.0, 1.0 / np.where(slopes < 1.0, 1.0 - slopes, 1.0), np.nan)


def inside_case(rng):
    """Triplets whose margins are positive at K0, where alone the loss is finite."""
    K0 = kernel(rng, 12)
    rows = triplets(rng, 12, 120)
    rows = rows[ConstraintSet.triplets(12, rows).values(K0) > 0]
    return LogDetKernelProblem(K0, ConstraintSet.triplets(12, rows), BarrierLoss(), 1.0)


@pytest.mark.parametrize(("towards", "seed"), but_for([(1, 0), (-1, 0)], [(1, 3), (-1, 3), (1, 0), (-1, 0)]), ids=str)
def test_a_path_begins_where_the_loss_is_finite(towards, seed):
    """Neither where two solutions lead nor where slopes at K0 grow to or are drawn back to, if a margin leaves the domain there."""
    problem = inside_case(np.random.default_rng(seed))
    found = solve_logdet_path(problem, OCTAVES[::towards])
    assert all(one.outcome is Outcome.SOLVED for one in found)
    assert all(np.isfinite(one.certificate.objective) for one in found)


def contradictory_case():
    """Each triplet and its opposite, of a K0 that has to become a thousandth of itself where they count."""
    rng = np.random.default_rng(0)
    rows = triplets(rng, 12, 60)
    both = ConstraintSet.triplets(12, np.concatenate([rows, rows[:, [0, 2, 1]]]))
    return LogDetKernelProblem(1e4 * kernel(rng, 12), both, LogLoss(), 1.0)


@pytest.mark.parametrize("factor", [1.05, 2.0])
def test_two_solutions_do_not_lead_away(factor):
    """Contradictory triplets of a large K0 leave one step from multipliers that balance; where two lead D is higher, F far too high."""
    problem = contradictory_case()
    led, alone = solve_logdet_path(problem, [factor**k for k in range(12)]), []
    for one in led:
        alone.append(solve_logdet(problem.with_gamma(one.gamma), start=alone[-1] if alone else None))
        assert one.outcome is Outcome.SOLVED
    assert sum(one.n_iter for one in led) <= sum(one.n_iter for one in alone)


def test_what_the_dual_has_proven_stays_proven(monkeypatch):
    """The primal goes on where K is too large for a bound of its own."""
    problem = contradictory_case()
    before = solve_logdet(problem, max_iter=20)
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_ASCENT", 20)
    found = solve_logdet(problem, max_iter=22)
    assert (before.method, found.method) == ("dual", "dual, primal")
    assert found.outcome is Outcome.ITERATION_LIMIT
    assert found.certificate.bound >= before.certificate.bound > 0
    assert found.certificate.objective <= before.certificate.objective


def test_what_the_primal_has_proven_stays_proven(rng, monkeypatch):
    """Where what follows it finds a better kernel and proves less of it."""

    def proving_nothing(problem, *args, **options):
        end = narrowing_losses(problem, *args, **options)
        unproven = problem.certificate(end.certificate.objective, -np.inf)
        return replace(end, certificate=unproven, outcome=Outcome.STALLED)

    constraints = ConstraintSet.triplets(12, triplets(rng, 12, 60))
    problem = LogDetKernelProblem(kernel(rng, 12), constraints, SmoothedHingeLoss(), 1.0)
    steps = solve_logdet(problem).n_iter - 1
    monkeypatch.setattr("dkl.solvers.logdet.solve.MOST_BENT", steps)
    monkeypatch.setattr("dkl.solvers.logdet.solve.NEAR", 0.0)
    monkeypatch.setattr("dkl.solvers.logdet.solve.narrowing_losses", proving_nothing)
    before, found = solve_logdet(problem, max_iter=steps), solve_logdet(problem)
    assert (before.method, found.method) == ("primal", "primal, dual")
    assert found.outcome is Outcome.STALLED
    assert found.certificate.objective < before.certificate.objective
    assert found.certificate.bound == before.certificate.bound > 0


class ExponentialLoss:
    """exp(-x), of margins far below 0 near the largest number."""

    lowest = 0.0

    def value(self, margins):
        return np.exp(-margins)

    def first(self, margins):
        return -np.exp(-margins)

    def second(self, margins):
        return np.exp(-margins)

    def margins_of(self, slopes):
        return -np.log(-np.minimum(slopes, 0.0))


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_slopes_near_the_largest_number_end_as_an_outcome(rng):
    constraints = ConstraintSet.triplets(10, triplets(rng, 10, 60))
    K0 = kernel(rng, 10)
    K0 *= 690.0 / -constraints.values(K0).min()  # exp(690) is finite, its square is not
    found = solve_logdet(LogDetKernelProblem(K0, constraints, ExponentialLoss(), 1.0))
    assert found.outcome in (Outcome.NUMERICAL_ERROR, Outcome.STALLED, Outcome.ITERATION_LIMIT)
    assert not found.certificate.relative_gap <= 1e-6


class LogLossAlone(LogLoss):
    """Without the inverse that it inherits."""

    margins_of = None


def test_an_inverse_that_is_none_is_no_inverse(rng):
    problem = LogDetKernelProblem(kernel(rng, 8), ConstraintSet.triplets(8, triplets(rng, 8, 20)), LogLossAlone(), 2.0)
    found = solve_logdet(problem)
    assert found.outcome is Outcome.SOLVED
    assert found.method == "primal"


def test_solutions_whose_multipliers_are_no_slopes_lead_nowhere(rng):
    """An inverse that is infinite at a slope of 0 tells no margins to go on from."""

    class Unclipped(LogLoss):
        def margins_of(self, slopes):
            with np.errstate(divide="ignore"):
                return -0.5 * np.log(-slopes / (2.0 + slopes))

    problem = LogDetKernelProblem(kernel(rng, 10), ConstraintSet.triplets(10, triplets(rng, 10, 60)), Unclipped(), 1.0)
    earlier, start = (
        replace(one, multipliers=np.where(np.arange(60) == 0, 0.0, one.multipliers))
        for one in solve_logdet_path(problem, [1.0, 2.0])
    )
    found = solve_logdet(problem.with_gamma(4.0), start=start, earlier=earlier)
    assert found.outcome is Outcome.SOLVED

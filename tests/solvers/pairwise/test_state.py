"""The factored solver, continued from any state it tells: the bytes of a solve that was never interrupted."""

import copy

import numpy as np
import pytest
from pairwise_cases import hard_rows
from repeats import but_for

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import make_problem
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise.low_rank import solve_to_gap
from dkl.solvers.watch import Outcome, Watch

HOW = {"target_gap": 1e-6, "seed": 3}


@pytest.fixture(scope="module")
def given():
    """Rows with duplicates, outliers and wrong pairs."""
    X, must, cannot = hard_rows(450, 1)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", session=Session.find(None, threads=1), warns_of_cuts=False
    )
    return make_problem(graph.laplacian, dkl.Pairs(must, cannot), 10.0)


def problem_of(given):
    """A new one each time: nothing is left of a solve before."""
    return FactoredPairwise(given.laplacian, given.targets, given.gamma)


def plain(rows):
    """Without the clock."""
    return [row | {"seconds": 0} for row in rows]


@pytest.fixture(scope="module")
def told(given):
    """(solution, a copy of the state at each row)."""
    states, asked = [], []

    def at_row(row):
        states.append(copy.deepcopy(asked[-1]()))

    whole = solve_to_gap(problem_of(given), watch=Watch([at_row]), keep=asked.append, **HOW)
    assert whole.outcome is Outcome.SOLVED
    return whole, states


def test_a_state_is_told_at_each_row(told):
    whole, states = told
    assert [state.count for state in states] == [row["iteration"] for row in whole.history]
    assert [state.products for state in states] == [row["products"] for row in whole.history]
    rounds = [state for state in states if state.descent is None]
    assert len(rounds) >= 3, "a problem of several rounds"


def kinds(states):
    """One of each kind: first iterations, around the recomputation of L V, certificates but the last, and what is beside them."""
    rounds = [k for k, state in enumerate(states) if state.descent is None][:-1]
    return [[18, 19, 20, rounds[0]], [0, 1, 21, 40], [*rounds, *(k - 1 for k in rounds), *(k + 1 for k in rounds)]]


@pytest.mark.parametrize("some", but_for([1, 2], range(3)))
def test_what_continues_has_the_same_bytes(given, told, some):
    whole, states = told
    for k in kinds(states)[some]:
        again = solve_to_gap(problem_of(given), resume_from=lambda k=k: states[k], **HOW)
        assert again.factor.tobytes() == whole.factor.tobytes(), k
        assert again.certificate.as_dict() == whole.certificate.as_dict()
        assert again.certificate.lift.tobytes() == whole.certificate.lift.tobytes()
        assert (again.n_iter, again.outcome) == (whole.n_iter, whole.outcome)
        assert plain(again.history) == plain(whole.history[k + 1 :]), k


@pytest.mark.parametrize("limit", [30, 31])
def test_a_limit_is_the_same_for_what_continues(given, limit):
    """Before and at an iteration that the limit ends at, and at the certificate after it."""
    how, states, asked = HOW | {"max_iter": limit}, [], []
    whole = solve_to_gap(
        problem_of(given),
        watch=Watch([lambda row: states.append(copy.deepcopy(asked[-1]()))]),
        keep=asked.append,
        **how,
    )
    assert whole.outcome is Outcome.ITERATION_LIMIT and len(whole.history) == limit + 2
    for k in (limit - 2, limit - 1, limit):
        again = solve_to_gap(problem_of(given), resume_from=lambda k=k: states[k], **how)
        assert again.outcome is whole.outcome and again.factor.tobytes() == whole.factor.tobytes()
        assert plain(again.history) == plain(whole.history[k + 1 :])


def test_nothing_of_a_state_is_changed_by_what_continues(given, told):
    _, states = told
    state = states[25]
    before = copy.deepcopy(state)
    solve_to_gap(problem_of(given), resume_from=lambda: state, **HOW)
    for name in ("v", "lv", "residual", "direction", "previous", "power"):
        assert np.array_equal(getattr(state.descent, name), getattr(before.descent, name)), name

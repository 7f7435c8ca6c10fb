"""A machine's solver that goes on from any state it kept comes to the bytes of one that was never ended."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from repeats import crossed
from svm_cases import Dense, parted, random_problem

from dkl.problems.svm.problem import NeighborhoodSVM
from dkl.solvers.svm import gradient as svm_gradient
from dkl.solvers.svm import working_set
from dkl.solvers.svm import working_set as svm_start
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interface import PointState, point_state
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.svm.refinement import refined
from dkl.solvers.svm.working_set import WorkingSets
from dkl.solvers.watch import Outcome, Watch
from dkl.stores.codec import decode, encode, pack, unpack


@pytest.fixture(autouse=True)
def few_at_first(monkeypatch):
    """Sets as small, beside a hundred rows, as they are beside many thousand."""
    monkeypatch.setattr(working_set, "FEWEST_FIRST", 10)
    monkeypatch.setattr(working_set, "MOST_FIRST", 12)
    monkeypatch.setattr(working_set, "LEAST_OF_A_CLASS", 3)


class Kept:
    """States as a store gives them back, with how many rows were told before each."""

    def __init__(self):
        self.states, self.rows = [], []

    def __call__(self, state):
        arrays, notes = encode(state)
        self.states.append((decode(type(state), unpack(*pack(arrays)), json.loads(json.dumps(notes))), len(self.rows)))

    def watch(self):
        return Watch([self.rows.append])


def told(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def notes_and_bytes(state):
    arrays, notes = encode(state)
    return notes, {name: values.tobytes() for name, values in arrays.items()}


def is_same(found, wanted):
    """Solutions, to the last bit."""
    for name in ("alpha", "product", "gradient"):
        assert getattr(found.point, name).tobytes() == getattr(wanted.point, name).tobytes(), name
    for name in ("objective", "gap", "intercept"):
        assert getattr(found.point, name) == getattr(wanted.point, name), name
    assert (found.n_iter, found.products, found.outcome) == (wanted.n_iter, wanted.products, wanted.outcome)


def by_refinement(solve, of, start=None, **how):
    """With a kernel in single precision: two rounds or more."""
    K = of.kernel.K.astype(np.float32).astype(float)
    return refined(solve, parted(NeighborhoodSVM(Dense(K), of.y, of.C, of.rho)), of.kernel, 1e-10, start, **how)


SETS = WorkingSets(Accelerated(tol=1e-10, max_iter=20_000), smallest=0)
PLAIN = Accelerated(tol=1e-4, max_iter=20_000, momentum=False, newton=False)
CASES = {
    "accelerated": (Accelerated(tol=1e-10).solve, {}),
    "without second order": (Accelerated(tol=1e-8, newton=False, max_iter=20_000).solve, {}),
    "an interior point": (Accelerated(tol=1e-10).solve, {"HARD": 20}),
    "gradient": (PLAIN.solve, {}),
    "gradient, by its change": (replace(PLAIN, by_change=True).solve, {}),
    "level": (LevelMethod(tol=1e-4).solve, {}),
    "level, at its limit": (LevelMethod(tol=1e-9, max_iter=7).solve, {}),
    "all rows at once": (WorkingSets(Accelerated(tol=1e-10)).solve, {}),
    "parts, then all": (SETS.solve, {}),
    "parts, then all, at their limit": (WorkingSets(Accelerated(tol=1e-12, max_iter=57), smallest=0).solve, {}),
    "parts": (SETS.solve, {"fits": False}),
    "rough parts": (SETS.solve, {"fits": False, "part_dtype": np.float32}),
    "rough parts, then all": (SETS.solve, {"part_dtype": np.float32}),
    "beyond rounding": (WorkingSets(Accelerated(tol=1e-18, max_iter=2_000), smallest=0).solve, {"fits": False}),
    "refinement": (partial(by_refinement, Accelerated(tol=5e-11).solve), {}),
    "refinement of parts": (partial(by_refinement, SETS.solve), {}),
}


LONG = ["level", "beyond rounding"]


@pytest.mark.parametrize(
    ("case", "begun"),
    [*crossed([case for case in CASES if case not in LONG], [False, True]),
     *(pytest.param(case, begun, marks=pytest.mark.exhaustive) for case in LONG for begun in (False, True))],
)  # fmt: skip
def test_any_state_leads_to_the_same_bytes(case, begun, rng, monkeypatch):
    solve, kinds = CASES[case]
    kinds = dict(kinds)
    monkeypatch.setattr(svm_gradient, "HARD", kinds.pop("HARD", svm_gradient.HARD))
    of = random_problem(rng, 60 if "level" in case or "gradient" in case else 150, gamma=0.5, C=5.0, rho=10.0)
    start = np.minimum(of.C, rng.random(of.n)) if begun else None
    kept = Kept()
    wanted = solve(parted(of, **kinds), start, watch=kept.watch(), on_state=kept)
    is_same(solve(parted(of, **kinds), start), wanted)  # whether it is kept or not
    assert kept.states
    for state, count in kept.states[:: max(1, len(kept.states) // 4)] + kept.states[-1:]:
        later = Kept()
        is_same(solve(parted(of, **kinds), start, watch=later.watch(), on_state=later, resume_from=state), wanted)
        assert told(later.rows) == told(kept.rows)[count:]
        for (mine, _), (theirs, _) in zip(later.states[::-1], kept.states[::-1], strict=False):
            assert notes_and_bytes(mine) == notes_and_bytes(theirs)


@pytest.mark.parametrize("by_pairs", [False, True])
def test_a_run_with_a_higher_limit_goes_on_to_the_same_bytes(by_pairs, rng, monkeypatch):
    """With a start by pairs too, of a machine that takes more than its rounds."""
    if not by_pairs:
        monkeypatch.setattr(svm_start, "MAX_ROWS", 0)
    of = random_problem(
        rng, 120, gamma=0.02 if by_pairs else 0.5, C=500.0 if by_pairs else 5.0, rho=1e9 if by_pairs else 10.0
    )
    for make in (
        lambda most: Accelerated(tol=1e-10, max_iter=most),
        lambda most: LevelMethod(tol=1e-3, max_iter=most),
        lambda most: WorkingSets(Accelerated(tol=1e-10, max_iter=most)),
    ):
        kept = Kept()
        assert make(10).solve(parted(of), on_state=kept).outcome is Outcome.ITERATION_LIMIT
        wanted = make(10_000).solve(parted(of))
        assert wanted.outcome is Outcome.SOLVED
        is_same(make(10_000).solve(parted(of), resume_from=kept.states[-1][0]), wanted)


def test_parts_go_on_beyond_a_limit(rng):
    """To a solution: within a round of parts the limit ended it where no other run stops."""
    of = parted(random_problem(rng, 200, gamma=1.0, C=10.0), fits=False)
    for most in (5, 15, 40):
        kept = Kept()
        few = WorkingSets(Accelerated(tol=1e-9, max_iter=most), smallest=0).solve(of, on_state=kept)
        assert few.outcome is Outcome.ITERATION_LIMIT
        beyond = WorkingSets(Accelerated(tol=1e-9), smallest=0).solve(of, resume_from=kept.states[-1][0])
        assert beyond.outcome is Outcome.SOLVED and beyond.n_iter > few.n_iter == most


def test_a_run_that_is_stopped_has_kept_where_it_stood(rng):
    of = random_problem(rng, 150, gamma=0.5, C=5.0, rho=10.0)
    for kinds in ({}, {"fits": False}):
        wanted = SETS.solve(parted(of, **kinds))
        for at in range(1, len(wanted.history)):
            kept = Kept()

            def stop(row, at=at, kept=kept):
                kept.rows.append(row)
                return len(kept.rows) == at

            assert SETS.solve(parted(of, **kinds), watch=Watch([stop]), on_state=kept).outcome is Outcome.STOPPED
            state, count = kept.states[-1]
            assert count == at - 1  # the check is done again
            is_same(SETS.solve(parted(of, **kinds), resume_from=state), wanted)


def test_the_state_of_a_point(rng):
    of = random_problem(rng, 20)
    point = of.zero().with_bound(3.0, 0.5)
    found = PointState.of(point).point(of)
    assert (found.gap, found.intercept) == (3.0, 0.5) and np.array_equal(found.gradient, point.gradient)
    assert point_state(None) is None

"""A machine is resumed only from a checkpoint whose every number is one that a solver can have written."""

import copy
import json

import numpy as np
import pytest
from svm_cases import Dense, parted, random_problem

from dkl.errors import StoreError
from dkl.estimators.svm.checkpoint import CachedColumns, MachineCheckpoint, MachineResult
from dkl.problems.svm.problem import NeighborhoodSVM
from dkl.solvers.svm import working_set
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.level import LevelMethod
from dkl.solvers.svm.refinement import refined
from dkl.solvers.svm.working_set import WorkingSets
from dkl.solvers.watch import Watch
from dkl.stores.codec import decode, encode, pack, unpack

N = 30
WRONG = ["x", "nan", float("nan"), [], {}, [1], -1, 10**400, True]
SOLVERS = {
    "level": LevelMethod(1e-2, 40).solve,
    "gradient": Accelerated(1e-6, 60, momentum=False, newton=False).solve,
    "accelerated": WorkingSets(Accelerated(1e-8, 200), 4).solve,
    "refined": None,
}


def solved(name, of, **how):
    if name != "refined":
        return SOLVERS[name](of, **how)
    rounded = NeighborhoodSVM(Dense(of.kernel.K.astype(np.float32).astype(float)), of.y, of.C, of.rho)
    return refined(SOLVERS["accelerated"], parted(rounded), of.kernel, 1e-9, **how)


def stored(machine):
    """(packed arrays, shapes, notes) of a machine as they are in a run's folder."""
    arrays, notes = encode(machine)
    packed, shapes = pack(arrays)
    return packed, shapes, json.loads(json.dumps(notes))


def loaded(packed, shapes, notes):
    return decode(MachineCheckpoint, unpack(packed, shapes), notes)


def is_same(one, other):
    first, second = stored(one), stored(other)
    return first[0].tobytes() == second[0].tobytes() and first[1:] == second[1:]


@pytest.fixture(params=SOLVERS)
def case(request, rng, monkeypatch):
    """(name of the solver, checkpoints of a machine at each check and at the end)."""
    for name, value in {"FEWEST_FIRST": 10, "MOST_FIRST": 12, "LEAST_OF_A_CLASS": 3}.items():
        monkeypatch.setattr(working_set, name, value)
    of, rows, machines = random_problem(rng, N), [], []
    cached = [CachedColumns(np.arange(3), "float32"), None]
    found = solved(
        request.param,
        parted(of) if request.param == "accelerated" else of,
        watch=Watch([rows.append]),
        on_state=lambda state: machines.append(MachineCheckpoint(N, state, cached, list(rows))),
    )
    cached = [CachedColumns(np.arange(2), "float64"), CachedColumns(np.arange(5), "")]
    machines.append(MachineCheckpoint(N, result=MachineResult.of(found, np.ones(1), 60, cached)))
    return request.param, machines


def test_whatever_solvers_report_comes_back(case):
    name, machines = case
    is_refined, solver = name == "refined", "accelerated" if name == "refined" else name
    assert len(machines) > 2
    for machine in machines:
        found = loaded(*stored(machine))
        assert is_same(found, machine)
        assert found.is_valid(N, solver, is_refined=is_refined)
        assert not found.is_valid(N + 1, solver, is_refined=is_refined)
        if machine.state is not None:
            assert not found.is_valid(N, solver, is_refined=not is_refined)
            assert not found.is_valid(N, "level" if solver != "level" else "gradient", is_refined=is_refined)


def places(notes, path=()):
    """Each place in notes, by keys and positions from the top."""
    yield path
    parts = notes.items() if isinstance(notes, dict) else enumerate(notes) if isinstance(notes, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def changed(notes, path, value):
    other = copy.deepcopy(notes)
    inner = other
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return other


def is_allowed(old, value):
    """Return whether another checkpoint may have `value` in the place of `old`."""
    if isinstance(value, bool) or isinstance(old, bool):
        return isinstance(old, type(value))
    if isinstance(old, float):
        return value == -1
    return isinstance(old, list) and value == []


def test_no_other_value_is_taken(case):
    """Each number, word and name in turn: a word, a list, a negative number, one beyond all; and each part left out."""
    _, machines = case
    for machine in (machines[-2], machines[-1]):
        packed, shapes, notes = stored(machine)
        for path in places(notes):
            old = notes
            for key in path:
                old = old[key]
            for value in WRONG:
                if path and old is not None and not is_allowed(old, value) and path[-2:-1] != ("history",):
                    with pytest.raises(StoreError, match=r"state\S*: not what a fit stores"):
                        loaded(packed, shapes, changed(notes, path, value))
            if isinstance(old, dict) and path[-2:-1] != ("history",):
                for name in old:
                    others = {other: old[other] for other in old if other != name}
                    for wrong in (others, old | {"more": 1}):
                        with pytest.raises(StoreError, match="not what a fit stores"):
                            loaded(packed, shapes, changed({"": notes}, ("", *path), wrong)[""])
        for name, shape in shapes.items():
            for value in ("x", None, [*shape[:-1], shape[-1] + 1], [-1], [10**30]):
                with pytest.raises(StoreError):
                    loaded(packed, {**shapes, name: value}, notes)


@pytest.mark.parametrize("wrong", [-1, N, 10**9])
def test_numbers_of_rows_that_there_are_not_are_refused(case, wrong):
    """A resealed file would end as an IndexError, or -1 as the last row."""
    _, machines = case
    seen = 0
    for machine in (machines[-2], machines[-1]):
        arrays, notes = encode(machine)
        for name in arrays:
            if name.endswith(".rows") and arrays[name].size:
                others = arrays | {name: np.append(arrays[name][:-1], wrong)}
                with pytest.raises(StoreError, match=rf"state\S*rows: not what a fit stores; .*wanted 0 to {N - 1}"):
                    decode(MachineCheckpoint, others, notes)
                seen += 1
    assert seen >= 2


def test_the_field_is_named(case):
    _, machines = case
    packed, shapes, notes = stored(machines[-1])
    with pytest.raises(StoreError, match=r"state.result.n_iter: not what a fit stores; got many; wanted int"):
        loaded(packed, shapes, changed(notes, ("result", "n_iter"), "many"))
    with pytest.raises(
        StoreError, match=r"state.result.point.alpha: not what a fit stores; got 30 rows; wanted 31 rows"
    ):
        loaded(packed, shapes, changed(notes, ("n",), 31))

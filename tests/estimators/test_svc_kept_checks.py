"""What is kept of a machine is gone on from only where every number of it is one that a solver has written."""

import copy
import json

import numpy as np
import pytest
from svm_cases import Dense, parted, random_problem

from dkl.estimators.svc.kept import Ended, KeptMachine, as_arrays, from_arrays
from dkl.estimators.svc.kept_checks import is_sound
from dkl.problems.neighborhood_svm import NeighborhoodSVM
from dkl.solvers import svm_working_set
from dkl.solvers.svm_gradient import Accelerated
from dkl.solvers.svm_level import LevelMethod
from dkl.solvers.svm_refinement import refined
from dkl.solvers.svm_working_set import WorkingSets
from dkl.solvers.watch import Watch

N = 30
WRONG = ["x", "nan", float("nan"), None, [], {}, [1], -1, 10**400, True]
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


def on_disk(machine):
    """What stands of a machine in a run's folder, as JSON and arrays."""
    arrays, notes = as_arrays({0: machine})
    return arrays, json.loads(json.dumps(notes))


@pytest.fixture(params=SOLVERS)
def kept(request, rng, monkeypatch):
    """(name of the solver, machines as kept at each check and at the end)."""
    for name, value in {"FEWEST_FIRST": 10, "MOST_FIRST": 12, "LEAST_OF_A_CLASS": 3}.items():
        monkeypatch.setattr(svm_working_set, name, value)
    of, rows, machines = random_problem(rng, N), [], []
    found = solved(
        request.param,
        parted(of) if request.param == "accelerated" else of,
        watch=Watch([rows.append]),
        kept=lambda state: machines.append(
            KeptMachine(
                state=state | {"held.0.rows": np.arange(3), "held.0.dtype": "float32"}, history=(rows, len(rows))
            )
        ),
    )
    ended = Ended.of(found, np.ones(1), 60, {"0.rows": np.arange(2), "0.dtype": "float64"})
    machines.append(KeptMachine(Ended(**{**ended.__dict__, "history": rows})))
    return "accelerated" if request.param == "refined" else request.param, machines


def test_whatever_solvers_keep_is_sound(kept):
    name, machines = kept
    assert len(machines) > 2
    for machine in machines:
        assert is_sound(from_arrays(*on_disk(machine))[0], N, name)
        assert not is_sound(from_arrays(*on_disk(machine))[0], N + 1, name)
    assert is_sound(KeptMachine(alpha=np.zeros(N)), N, name) and not is_sound(KeptMachine(alpha=np.zeros(2)), N, name)


def is_taken(arrays, notes, name):
    try:
        return is_sound(from_arrays(arrays, notes)[0], N, name)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def test_no_other_value_is(kept):
    """Each number, name and length in turn: a word, a list, negative, nothing."""
    name, machines = kept
    for machine in (machines[-2], machines[-1]):
        arrays, notes = on_disk(machine)
        (part,) = notes["machines"]["0"]
        for group in ("numbers", "vectors"):
            for key in notes["machines"]["0"][part][group]:
                for value in WRONG:
                    other = copy.deepcopy(notes)
                    held = other["machines"]["0"][part][group]
                    if value == -1 and isinstance(held[key], float):
                        continue
                    if value is True and isinstance(held[key], bool):
                        continue
                    held[key] = value
                    assert not is_taken(arrays, other, name), (part, key, value)
        for group in ("numbers", "vectors", "history"):
            for value in ("x", None, 3):
                other = copy.deepcopy(notes)
                other["machines"]["0"][part][group] = value
                assert not is_taken(arrays, other, name), (part, group, value)
        other = copy.deepcopy(notes)
        if other["machines"]["0"][part]["history"]:
            other["machines"]["0"][part]["history"][0]["seconds"] = "x"
            assert not is_taken(arrays, other, name)

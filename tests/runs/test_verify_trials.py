"""Random runs of every learner: `dkl verify` finds them sound, and sees one changed number. 500 a learner: `tests/verify_trials.py`."""

import itertools

import pytest
import verify_trials as trials
from repeats import but_for

FEW, MORE, TENTH = 3, 20, 50
MATRICES = range(trials.WITH_CONSTRAINTS, trials.WITH_CONSTRAINTS + 4)
"""Seeds of LogDet learners that may learn from constraint matrices, and of kernels from pairs that may be hard."""


@pytest.mark.parametrize(
    ("learner", "seed"),
    [
        *but_for(
            list(itertools.product(trials.LEARNERS, range(FEW, MORE))), itertools.product(trials.LEARNERS, range(MORE))
        ),
        *but_for(
            list(itertools.product(["logdet", "metric"], MATRICES[1:])),
            itertools.product(["logdet", "metric"], MATRICES),
        ),
    ],
)
def test_a_sound_run_agrees_and_a_changed_number_is_seen(learner, seed):
    found = trials.in_a_folder(learner, seed, trials.SMALL)
    assert found.is_right, found


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(TENTH))
@pytest.mark.parametrize("learner", trials.LEARNERS)
def test_a_tenth_of_the_trials(learner, seed):
    found = trials.in_a_folder(learner, seed)
    assert found.is_right, found


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("learner", "seed"),
    [
        ("svc", 173),
        ("regression", 454),
        *(("metric", seed) for seed in (346, 387, 403)),
        *(("logdet", seed) for seed in (97, 98, 259, 281, 415, 438, 496, 548)),
    ],
)
def test_runs_that_were_accused_or_missed_once(learner, seed):
    found = trials.in_a_folder(learner, seed)
    assert found.is_right, found

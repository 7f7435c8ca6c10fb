"""Random runs of every learner: `dkl verify` finds them sound, and sees one changed number. 500 a learner: `tests/verify_trials.py`."""

import pytest
import verify_trials as trials
from repeats import but_for

PLAIN, TENTH = 8, 50


@pytest.mark.parametrize("seed", but_for(range(PLAIN, TENTH), range(TENTH)))
@pytest.mark.parametrize("learner", trials.LEARNERS)
def test_a_sound_run_agrees_and_a_changed_number_is_seen(learner, seed):
    found = trials.in_a_folder(learner, seed)
    assert found.is_right, found

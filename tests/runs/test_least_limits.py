"""Commands at the least memory limit that a plan accepts: a tenth of the points of `tests/limit_trials.py`."""

import limit_trials
import pytest


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(20))
def test_all_commands_stay_within_the_least_limit_of_a_fit(seed):
    point = limit_trials.in_a_folder((seed, None))
    assert point.is_right, point

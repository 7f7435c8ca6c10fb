"""Commands at the least memory limit that a plan accepts: a tenth of the points of `tests/limit_trials.py`, of all learners."""

import limit_trials
import pytest

SEEDS = (0, 1, 2, 5, 6, 7, 8, 10, 13, 14, 16, 17, 18, 1001, 1004, 1010, 1014, 1015, 1027, 1028)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", SEEDS)
def test_all_commands_stay_within_the_least_limit_of_a_fit(seed):
    point = limit_trials.in_a_folder((seed, None))
    assert point.is_right, point


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(5))
def test_all_commands_of_a_metric_stay_within_it(seed):
    point = limit_trials.in_a_folder((seed, "metric"))
    assert point.is_right, point

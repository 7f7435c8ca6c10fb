"""Parts and files of a run in the place of another's: every verb refuses them, or answers as without them."""

from pathlib import Path

import pytest
import swap_trials
import trials


def silent(base: Path, case: str, count: int, among: tuple[str, ...]) -> list[trials.Outcome]:
    """Return the trials that were silent, of `count` swaps with the runs of a case in which these things are other."""
    swap_trials.make_runs(base, [case], among)
    found = trials.run("swap_trials.swapped", swap_trials.specs_of(base, [case], count))
    assert len(found) == count
    return [outcome for outcome in found if outcome.is_bad]


@pytest.mark.exhaustive
def test_a_part_of_a_run_with_another_kernel_is_not_taken(tmp_path):
    assert silent(tmp_path, "svc", 4, ("kernel",)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", swap_trials.OTHERS)
def test_no_part_of_another_run_is_taken(tmp_path, case):
    assert silent(tmp_path, case, 25, swap_trials.OTHER) == []

"""States that a run is resumed from: of other runs, and as any write of a commit that was the last has left them.

pytest -m slow -n0 tests/failures -k R12 prints what came of each difference.
"""

from __future__ import annotations

import signal
from collections import Counter

import foreign_trials
import hostile_runs_trials as runs
import pytest
import trials

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", foreign_trials.DIFFERENCES)
def test_R12_the_state_of_another_run(name, tmp_path, told):
    """Of other data, targets, settings: refused, or passed over for the bytes of the undisturbed run."""
    runs.make_inputs(tmp_path, [name])
    foreign_trials.write_others(tmp_path)
    foreign_trials.make(tmp_path, name)
    kinds = [*foreign_trials.DIFFERENCES[name], foreign_trials.OWN]
    found = trials.run("foreign_trials.resumed", [(str(tmp_path), name, kind) for kind in kinds])
    for outcome in found:
        told("R12: states of other runs", f"{name}: {outcome.spec[2]}", {"trials": 1, **Counter([outcome.told])})
    assert not [outcome for outcome in found if outcome.is_bad]


@pytest.mark.parametrize("name", runs.CASES)
def test_R9_R27_a_crash_at_any_call_that_changes_the_disk(name, tmp_path, seeds, told):
    """Writes, renames, new and removed folders of a whole run: the state before or after it, never a mixture, so that it is
    resumed to the same bytes; at most three states are there (R27: two, and one in progress), and nothing is left in the end."""
    runs.make_inputs(tmp_path, [name])
    (made,) = trials.run("crash_trials.calls", [(str(tmp_path), name)])
    count = int(made.told)
    specs = [(what, str(tmp_path), name, seed, count) for seed in seeds for what in ("dies", "resumed")]
    found = trials.run("crash_trials.disturbed", specs)
    died, ended = found[::2], found[1::2]
    came = Counter(outcome.told.partition(", ")[2] or outcome.told for outcome in ended)
    states = max((int(outcome.told[0]) for outcome in ended if outcome.told[0].isdigit()), default=0)
    told("R9, R27: a crash at a call", name, {"trials": len(ended), "calls": count, **came, "states worst": states})
    assert all(outcome.told == f"died of {-signal.SIGKILL}" for outcome in died)
    assert not [outcome for outcome in ended if outcome.is_bad] and states <= 3

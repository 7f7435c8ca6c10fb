"""Configurations, manifests and inputs that are changed at random: one line and an exit status, never a bug, a hang or a gigabyte.

pytest -m slow -n0 tests/failures -k R20 --trials 100 prints what came of 100 of each case's complete and killed runs, and of each
format of input.
"""

from __future__ import annotations

from collections import Counter

import hostile_runs_trials as runs
import hostile_trials
import pytest
import trials

pytestmark = pytest.mark.slow
MOST_BYTES = 500 * 2**20
SHARE = 4
"""Of a trial of what is quick: a few."""


def check(figure, case, found, told):
    counts = {"trials": len(found), **Counter(outcome.told for outcome in found)}
    told(figure, case, {**counts, "MB worst": max(outcome.bytes for outcome in found) // 10**6})
    assert not [outcome for outcome in found if outcome.is_bad or outcome.bytes > MOST_BYTES]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    runs.make_runs(folder)
    return folder


@pytest.mark.parametrize("what", ["configured", "described"])
@pytest.mark.parametrize("name", runs.CASES)
def test_R20_configurations_and_manifests(name, what, made, seeds, told):
    each = seeds if what == "described" else range(SHARE * seeds.start, SHARE * seeds.stop)
    specs = [(str(made), name, state, seed) for seed in each for state in runs.STATES]
    check(f"R20: {what}", name, trials.run(f"config_trials.{what}", specs), told)


@pytest.mark.parametrize("name", hostile_trials.FORMATS)
def test_R20_inputs(name, tmp_path, seeds, told):
    hostile_trials.write_formats(tmp_path)
    specs = [(str(tmp_path), name, seed) for seed in seeds]
    check("R20: inputs", name, trials.run("hostile_trials.mutated_input", specs), told)

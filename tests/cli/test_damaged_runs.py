"""Files of runs of all learners, complete and killed on their way: damaged, in each other's place, or saying what nobody
wrote. What reads them says so; no verb gives another result with a good exit status.

`pytest -m slow -n0 -s tests/cli/test_damaged_runs.py` makes 500, 100 and 1,000 of them and prints the tables.
"""

from pathlib import Path

import hostile_runs_trials as runs
import pytest
import trials
from repeats import but_for

KINDS = {
    "damages": ("hostile_runs_trials.damaged", (False,), 500),
    "swaps": ("hostile_runs_trials.damaged", (True,), 100),
    "values": ("hostile_runs_trials.reworded", (), 1000),
}

NOTICED = ("refused", "made again")
"""Which of the two depends on where the fit was killed: a damaged part that it had yet to write is recomputed."""


def check(base: Path, names: tuple[str, ...], kind: str, count: int) -> None:
    trial, more, _ = KINDS[kind]
    among = [(name, state) for name in names for state in runs.STATES]
    specs = [(str(base), *among[seed % len(among)], seed, *more) for seed in range(count)]
    found = trials.run(trial, specs)
    print("\n" + trials.table(found, lambda spec: f"{spec[1]}, {spec[2]}"))
    assert not [outcome for outcome in found if outcome.is_bad or outcome.is_large]
    assert any(outcome.told in NOTICED for outcome in found)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("two")
    runs.make_runs(base, ("pairs", "svc, gradient"))
    return base


@pytest.mark.parametrize("kind", but_for(list(KINDS)[1:], KINDS))
def test_a_few(kind: str, two: Path) -> None:
    check(two, ("pairs", "svc, gradient"), kind, 8)


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("all")
    runs.make_runs(base)
    return base


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind: str, all_of_them: Path) -> None:
    check(all_of_them, tuple(runs.CASES), kind, KINDS[kind][2])

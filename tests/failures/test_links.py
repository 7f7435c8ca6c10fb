"""Links of hosts that are cut and mended while runs of every learner are under way; hosts are network namespaces, which a
machine may not allow.

pytest -m slow -n0 tests/failures -k link --trials 2 prints what came of two cuts of each learner's.
"""

from __future__ import annotations

from functools import partial, update_wrapper

import disturbances as d
import pytest
from hostile_runs_trials import CASES

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", CASES)]


def test_a_link_is_cut_for_a_while(name, runs_at, checked, seeds):
    runs = runs_at("hosts")
    found = (runs.trial(name, seed, d.cut_link, times=1, told=[]) for seed in seeds)
    checked("links: cut for 0.5 to 5 s", name, found)


def test_a_link_is_cut_until_the_worker_is_given_up(name, runs_at, checked, seeds):
    runs = runs_at("hosts")
    cut = update_wrapper(partial(d.cut_link, seconds=d.LONG_CUT), d.cut_link)
    found = (runs.trial(name, seed, cut, times=1, told=[]) for seed in seeds)
    checked(f"links: cut for {d.LONG_CUT:.0f} s", name, found)

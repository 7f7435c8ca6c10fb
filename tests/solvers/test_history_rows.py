"""Rows of a history kept by columns: they come back as they were, and take what their numbers take."""

import math
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkl.solvers.watch import HistoryRows, Watch

VALUES = st.one_of(
    st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3), st.floats().map(np.float64),
    st.integers(-(2**31), 2**31).map(np.int64), st.lists(st.integers(0, 3), max_size=2),
)  # fmt: skip


def same(a, b):
    return type(a) is type(b) and (a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b)))


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1), max_size=12))
def test_rows_come_back_as_they_were(rows):
    found = list(HistoryRows(rows))
    assert [list(row) for row in found] == [list(row) for row in rows]
    assert all(
        same(a, b)
        for left, right in zip(found, rows, strict=True)
        for a, b in zip(left.values(), right.values(), strict=True)
    )


def test_rows_of_several_kinds_take_turns_and_each_reading_has_dicts_of_its_own():
    rows = [{"k": k, "gap": 0.5} if k % 5 else {"k": k, "gap": None} for k in range(20)]
    kept = HistoryRows(rows)
    first = list(kept)
    first[0].clear()
    rows[1].clear()
    assert [row["k"] for row in kept] == list(range(20)) and next(iter(kept)) == {"k": 0, "gap": None}


def test_a_long_history_takes_some_bytes_a_number():
    watch, names = Watch(), [f"value {k}" for k in range(12)]
    watch.record({"iteration": 0, "finite": True} | dict.fromkeys(names, 0.5))
    tracemalloc.start()
    for iteration in range(2000):
        # Values and names of its own, as of a row that a worker has sent.
        watch.record(
            {"iteration": iteration, "finite": True} | {str([name])[2:-2]: iteration / 7 + 1 for name in names}
        )
    taken = tracemalloc.get_traced_memory()[0] / 2000
    tracemalloc.stop()
    assert taken < 2 * 8 * (len(names) + 3)
    assert len(watch.history) == 2001 and watch.history[-1]["value 11"] == 1999 / 7 + 1

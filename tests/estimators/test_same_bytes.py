"""Every learner learns the same bytes by one thread, by two, and on the workers of a cluster."""

from typing import Any

import dask
import door_cases as doors
import numpy as np
import pytest
import scipy.sparse as sp
from repeats import but_for

from dkl import baselines
from dkl.blocks.rows import row_blocks, row_groups
from dkl.linalg.kernels import kernel_columns

N = 240
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, doors.D)) + 1.5 * (np.arange(N) % 2)[:, None]
CLASSES = np.arange(N) % 2
TARGETS = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
SHARED = sorted({
    name for name, learner in doors.LEARNERS.items() if {"client", "n_jobs"} <= set(learner.make().get_params())
})  # fmt: skip
"""Learners whose work threads or workers share."""
pytestmark = pytest.mark.filterwarnings("ignore")  # results are to be the same, however good they are


@pytest.fixture
def many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set blocks and groups of so few rows that each thread and worker has some; fits without client= find none."""
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 1000)
    monkeypatch.setattr(row_groups, "ROWS_IN_GROUP", 32)
    for bound in ("SMALLEST_BLOCK", "LARGEST_BLOCK"):
        monkeypatch.setattr(kernel_columns, bound, 24)
    monkeypatch.setattr("dkl.blocks.session._current_client", lambda: None)


def learned(name: str, **where: Any) -> dict[str, bytes]:
    """Return the bytes of all that a learner has found, and of its answer for new rows."""
    case = doors.LEARNERS[name]
    y = TARGETS if case.takes == "targets" else CLASSES
    fitted = case.make(**where).fit(X, *([y] if case.takes else []))
    found = {"answer": doors.answer(fitted, doors.FRESH)}
    for attribute, value in vars(fitted).items():
        if attribute.endswith("_") and not attribute.startswith("_"):
            array = np.asarray(value.toarray() if sp.issparse(value) else value)
            if array.dtype != object:
                found[attribute] = array
    return {what: str((array.dtype, array.shape)).encode() + array.tobytes() for what, array in found.items()}


@pytest.mark.parametrize("name", but_for(baselines.__all__, SHARED))
def test_threads_and_workers_learn_the_same_bytes(client: Any, many_blocks: None, name: str) -> None:
    alone = learned(name, n_jobs=1)
    assert len(alone) >= 3  # the answer, the number of columns, and what was learned
    assert learned(name, n_jobs=2) == alone
    with dask.config.set({"dkl.workers": "always"}):
        assert learned(name, client=client) == alone

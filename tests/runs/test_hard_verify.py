"""Verification of hard constraints on many rows: a factor shows that no eigenvalue of S is below the one that a report has."""

import numpy as np
import pytest
from scipy import sparse

from dkl.runs.qsdp import verify_hard

BUDGET = 10**8


@pytest.mark.parametrize("is_centered", [False, True])
def test_a_factor_tells_a_true_claim_from_one_that_is_too_high(is_centered, rng, monkeypatch):
    n = 60
    W = rng.random((n, n)) * (rng.random((n, n)) < 0.1)
    W += W.T
    S = sparse.csr_array(np.diag(W.sum(axis=1)) - W - 0.05 * np.eye(n))
    values = np.linalg.eigvalsh(S.toarray())
    # The constant vector's -0.05 is no matter where K 1 = 0.
    least = values[1] if is_centered else values[0]
    whole, _ = verify_hard.lowest(S, None, BUDGET, least, 0.0, is_centered=is_centered)
    assert whole == pytest.approx(least, abs=1e-12)
    monkeypatch.setattr(verify_hard, "DENSE", 10)
    for claimed in (least - 1.0, least - 1e-9, least + 1e-9):
        found, name = verify_hard.lowest(S, None, BUDGET, claimed, 1e-8, is_centered=is_centered)
        assert found == claimed and "at least" in name
    for claimed in (least + 1e-7, least + 1.0, 1e9):
        found, _ = verify_hard.lowest(S, None, BUDGET, claimed, 1e-8, is_centered=is_centered)
        assert found <= values[0] < claimed
    # Without memory for a factor Lanczos' eigenvalue is all, from above.
    found, name = verify_hard.lowest(S, None, 100, least, 1e-8, is_centered=is_centered)
    assert found >= least - 1e-9 and "Lanczos" in name

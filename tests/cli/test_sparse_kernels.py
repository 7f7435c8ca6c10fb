"""A precomputed kernel in a sparse file, which no learner takes: refused by name, to learn from and to apply a run to."""

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import SLOW, call, refused_without
from repeats import but_for

N = 24
VERBS = {"svc": "predict", "regression": "predict", "logdet": "transform"}


@pytest.fixture
def work(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    X = rng.standard_normal((N, 3))
    K = X @ X.T + np.eye(N)
    np.save("K.npy", K)
    np.save("y.npy", np.arange(N) % 2)
    sp.save_npz("sparse.npz", sp.csr_array(K))
    sp.save_npz("new.npz", sp.csr_array(K[:5] + 0.5))


@pytest.mark.parametrize("task", but_for(VERBS.keys() - {"regression"}, VERBS))
def test_sparse_kernels_are_refused(task, work):
    wanted = "a precomputed kernel must be dense; store K.toarray()"
    fit = ["fit", task, "--targets", "y.npy", "--kernel", "precomputed", "--no-picture"]
    assert f"sparse.npz: {wanted}" in refused_without(SLOW, *fit, "--data", "sparse.npz", "--out", "sparse.zarr")
    assert call(*fit, "--data", "K.npy", "--out", "run.zarr").code == 0
    applied = VERBS[task], "run.zarr", "--data", "new.npz", "--out", "p.npy"
    assert f"new.npz: {wanted}" in refused_without(SLOW, *applied)

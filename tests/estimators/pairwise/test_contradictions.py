"""Pairs and triplets that contradict each other, in every learner that takes any: kept, left out or refused."""

import warnings

import numpy as np
import pytest
from command_line import call

import dkl
from dkl import baselines
from dkl.errors import DataWarning, InconsistentPairsError

N = 40
Y = np.arange(N) % 2
X = np.random.default_rng(0).standard_normal((N, 3)) + 2.0 * Y[:, None]
MUST, CANNOT = [[0, 2], [2, 4], [1, 3], [5, 7], [8, 9]], [[0, 4], [1, 6], [3, 8], [9, 8]]
ITML = {"loss_params": {"upper": 1.0, "lower": 9.0}}
LEARNERS = {
    "pairwise": lambda **more: dkl.PairwiseKernelLearner(random_state=0, **more),
    "laplacian": lambda **more: dkl.LaplacianKernelLearner(6, random_state=0, **more),
    "logdet": lambda **more: dkl.LogDetKernelLearner(loss="hoi", kernel="rbf", **more),
    "metric": lambda **more: dkl.LogDetMetricLearner(**ITML, **more),
    "itml kernel": lambda **more: baselines.ITMLKernelLearner(kernel="rbf", random_state=0, **ITML, **more),
    "itml metric": lambda **more: baselines.ITMLMetricLearner(random_state=0, **ITML, **more),
    "gradient": lambda **more: baselines.ConjugateGradientKernelLearner(loss="hoi", kernel="rbf", gamma=2.0, **more),
}


def learned(model):
    return next(getattr(model, name) for name in ("factor_", "embedding_", "M_", "components_") if hasattr(model, name))


@pytest.mark.parametrize("name", LEARNERS)
def test_pairs(name):
    make, pairs = LEARNERS[name], dkl.Pairs(MUST, CANNOT)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", DataWarning)
        kept = make().fit(X, must_link=MUST, cannot_link=CANNOT)
    (told,) = [one for one in seen if "contradict each other" in str(one.message)]
    assert "1 of 3 cannot-links lie inside" in str(told.message) and "1 left out" in str(told.message)
    with pytest.raises(InconsistentPairsError, match="must-linked through 0-2-4"):
        make(contradictions="raise").fit(X, must_link=MUST, cannot_link=CANNOT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        checked = pairs.check(N, "keep")
        assert np.array_equal(learned(make().fit(X, pairs=checked)), learned(kept))
    dropped = make(contradictions="drop").fit(X, pairs=pairs)
    assert np.array_equal(learned(make(contradictions="raise").fit(X, pairs=pairs.check(N, "drop"))), learned(dropped))
    assert not np.array_equal(learned(dropped), learned(kept))


def test_triplets():
    triplets = [[0, 2, 1], [0, 1, 2], [2, 4, 5]]
    with pytest.warns(DataWarning, match=r"2 of 3 triplets are given with their reverse.*triplets\[0\] = \(0, 2, 1\)"):
        kept = dkl.LogDetKernelLearner(kernel="rbf").fit(X, triplets=triplets)
    dropped = dkl.LogDetKernelLearner(kernel="rbf", contradictions="drop").fit(X, triplets=triplets)
    assert len(dropped.points_) == 3 < len(kept.points_)
    with pytest.raises(InconsistentPairsError, match="the reverse is there too"):
        dkl.LogDetKernelLearner(contradictions="raise").fit(X, triplets=triplets)


@pytest.mark.parametrize("task", ["pairwise", "laplacian", "logdet"])
def test_commands(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X)
    np.savez("pairs.npz", must_link=MUST, cannot_link=CANNOT)
    files = ("--data", "X.npz", "--pairs", "pairs.npz", "--out", "run.zarr", "--no-picture", "--threads", 1)
    own = {"logdet": ("--loss", "hoi", "--kernel", "rbf"), "laplacian": ("--n-basis", 6)}.get(task, ())
    refused = call("fit", task, *files, *own, "--contradictions", "raise")
    assert refused.code == 2 and "must-linked through 0-2-4" in refused.err and "for contradictions" in refused.err
    kept = call("fit", task, *files, *own)
    assert kept.code == 0 and kept.err.count("1 of 3 cannot-links lie inside must-link components") == 1
    assert call("verify", "run.zarr").code == 0
    known = learned(dkl.load("run.zarr"))
    with pytest.warns(DataWarning, match="contradict each other"):
        assert learned(LEARNERS[task]().fit(X, must_link=MUST, cannot_link=CANNOT)).shape == known.shape

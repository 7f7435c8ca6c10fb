"""Of too little data no quality is measured, and everything that shows a result says why in one line."""

import json

import numpy as np
import pytest
from command_line import call

import dkl

CASES = {
    "pairwise": (("--data", "X.npz", "--pairs", "pairs.csv"), "12 pairs are too few to hold 10 out"),
    "laplacian": (("--data", "X.npz", "--pairs", "pairs.csv", "--n-basis", "8"), "12 pairs are too few to hold 10 out"),
    "logdet": (("--data", "X.npz"), "40 labeled rows are too few to hold 10 out"),
    "logdet-triplets": (("--data", "X.npz", "--triplets", "triplets.csv"), "4 triplets are too few to hold 10 out"),
    "logdet-constraints": (("--data", "X.npz", "--constraints", "c.npy"), "2 constraints are too few to hold 10 out"),
    "logdet-pairs": (
        ("--data", "X.npz", "--pairs", "pairs.csv", "--loss", "itml"),
        "12 pairs are too few to hold 10 out",
    ),
    "metric": (("--data", "X.npz"), "40 labeled rows are too few to hold 10 out"),
    "metric-pairs": (("--data", "X.npz", "--pairs", "pairs.csv"), "12 pairs are too few to hold 10 out"),
    "svc": (("--data", "X.npz"), "40 rows are too few to hold 10 out"),
    "regression": (("--data", "X.npz", "--nu", "1", "--n-columns", "10"), "40 rows are too few to hold 10 out"),
    "mvu": (
        ("--data", "few.npz", "--n-neighbors", "5", "--n-basis", "8"),
        "20 rows are too few to rank neighbors among",
    ),
}


@pytest.fixture
def files(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    y = np.arange(40) % 2
    X = rng.standard_normal((40, 3)) + 4.0 * y[:, None]
    np.savez("X.npz", X=X, y=y)
    np.savez("few.npz", X=X[:20])
    (tmp_path / "pairs.csv").write_text(
        "i,j,label\n" + "".join(f"{i},{i + 2},must\n{i},{i + 1},cannot\n" for i in range(0, 24, 4))
    )
    np.save("c.npy", [[0, 1, 1, 1], [1, 2, 3, 1], [1, 3, 2, 1]])
    (tmp_path / "triplets.csv").write_text("anchor,similar,dissimilar\n0,2,1\n1,3,2\n4,6,5\n5,7,6\n")


@pytest.mark.parametrize("case", CASES)
def test_a_run_of_little_data_says_why_it_has_no_quality(case, files):
    options, reason = CASES[case]
    task = case.partition("-")[0]
    answer = call("fit", task, *options, "--threads", "1", "--no-picture", "--out", "run.zarr")
    assert answer.code == 0, answer
    line = f"\n  {'quality':<32}none: {reason}"
    assert line in answer.out and line in call("info", "run.zarr").out
    report = json.loads(call("info", "run.zarr", "--json").out)["report"]
    assert report["quality"] is None and report["no_quality"].startswith(reason)
    found = dkl.load("run.zarr").result_
    assert found.quality is None and reason in repr(found)
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and "quality" not in answer.out
    without = call("fit", task, *options, "--threads", "1", "--no-picture", "--holdout", "0", "--out", "none.zarr")
    assert without.code == 0 and "  quality " not in without.out


@pytest.mark.parametrize("learner", [dkl.KernelPCA(3), dkl.SpectralEmbedding(2, n_neighbors=5)])
def test_a_map_of_few_rows_says_why_it_has_no_quality(learner, rng):
    X = rng.standard_normal((20, 5))
    assert "20 rows are too few" in repr(learner.fit(X).result_)
    assert learner.set_params(holdout=0).fit(X).result_.no_quality == ""


def test_a_metric_of_few_rows_says_why_it_has_no_quality(rng):
    model = dkl.LogDetMetricLearner().fit(rng.standard_normal((40, 3)), np.arange(40) % 2)
    assert "40 labeled rows are too few" in repr(model.result_)

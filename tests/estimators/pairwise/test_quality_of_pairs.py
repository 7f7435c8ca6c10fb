"""The quality of kernels from pairs: scikit-learn's AUC of K_ij on pairs that were not learned from, next to that of distances."""

import warnings

import numpy as np
import pytest
from command_line import call
from quality_checks import LESS, check_other_model, check_run, check_verify
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import dkl
from dkl.errors import DataWarning
from dkl.problems.pair_folds import follows
from dkl.quality import held_out

LEARNERS = {
    "pairwise": (dkl.PairwiseKernelLearner, {"random_state": 0}),
    "admm": (dkl.PairwiseKernelLearner, {"random_state": 0, "solver": "admm", "rank": 20}),
    "laplacian": (dkl.LaplacianKernelLearner, {}),
}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    ends = np.unique(np.sort(np.random.default_rng(1).integers(0, 400, (300, 2))), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    more = np.flatnonzero(y == 3)[:30].reshape(-1, 2)  # few pairs at random are of one class
    return X, dkl.Pairs(np.concatenate([ends[same], more]), ends[~same]).check(400)


def parts(pairs, n, share, seed):
    """(which pairs are learned from, which are compared)."""
    is_must = pairs.sign > 0
    left = ~np.isin(np.arange(len(is_must)), held_out(len(is_must), share, seed, 7, is_must.astype(int)))
    return left, ~left & ~follows(n, pairs, left)


def similar(X, pairs):
    return -np.linalg.norm(X[pairs.i] - X[pairs.j], axis=1)


@pytest.mark.parametrize("name", ["laplacian"])  # test_pair_quality.py has the others
def test_it_is_the_auc_of_a_kernel_of_the_other_pairs(digits, name):
    X, pairs = digits
    kind, options = LEARNERS[name]
    quality = kind(holdout=0.3, **options).fit(X, pairs=pairs).result_.quality
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max) if name != "laplacian" else 0
    left, tests = parts(pairs, len(X), 0.3, seed)
    ends, is_must = np.stack([pairs.i, pairs.j], axis=1), pairs.sign > 0
    rest = dkl.Pairs(ends[left & is_must], ends[left & ~is_must])
    model = kind(holdout=0, **options).fit(X, pairs=rest)
    V = model.factor_ if name != "laplacian" else model.embedding_
    scores = (V[pairs.i] * V[pairs.j]).sum(axis=1)
    assert quality.value == pytest.approx(roc_auc_score(is_must[tests], scores[tests]), abs=0.04)
    wanted = roc_auc_score(is_must[tests], similar(X, pairs)[tests])
    assert (quality.alternative, quality.alternative_value) == ("distances of rows", pytest.approx(wanted, rel=1e-12))
    assert quality.n == np.count_nonzero(tests)


def test_the_kernel_of_admm_does_not_depend_on_what_is_held_out(digits):
    X, pairs = digits
    kind, options = LEARNERS["admm"]
    with_it, without = (kind(holdout=share, **options).fit(X, pairs=pairs) for share in (0.1, 0.0))
    assert with_it.factor_.tobytes() == without.factor_.tobytes()
    assert with_it.result_.quality is not None and without.result_.quality is None


def test_the_kernel_of_smooth_rows_differs_by_no_more_than_is_proven(digits):
    """The fit begins at the kernel without the held-out pairs, and ends within the same gap."""
    X, pairs = digits
    with_it, without = (dkl.LaplacianKernelLearner(holdout=share, tol=1e-9).fit(X, pairs=pairs) for share in (0.1, 0.0))
    assert with_it.result_.outcome.converged and with_it.certificate_.relative_gap <= 1e-9
    assert with_it.certificate_.objective == pytest.approx(without.certificate_.objective, rel=1e-9)
    kernels = [model.embedding_ @ model.embedding_.T for model in (with_it, without)]
    np.testing.assert_allclose(*kernels, atol=1e-2)
    assert with_it.result_.quality is not None and without.result_.quality is None


@pytest.mark.filterwarnings("ignore:the pairs contradict each other")
@pytest.mark.parametrize("name", ["pairwise", "laplacian"])
def test_useless_columns_warn_and_good_ones_do_not(digits, name):
    X, pairs = digits
    kind, options = LEARNERS[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=f".*{LESS}")
        kind(holdout=0.3, **options).fit(X, pairs=pairs)
    # Must-links are all pairs that are nearer than others, which distances say at once, and no kernel of few eigenvectors.
    ends, place = np.stack([pairs.i, pairs.j], axis=1), np.random.default_rng(0).permutation(400) / 1.0
    apart = np.abs(place[ends[:, 0]] - place[ends[:, 1]])
    is_near = apart < np.median(apart)
    more = {"n_basis": 2} if name == "laplacian" else {"wrong_pairs": "trust"}
    with pytest.warns(DataWarning, match=f"{LESS} distances of rows"):
        kind(holdout=0.3, **more, **options).fit(place[:, None], pairs=dkl.Pairs(ends[is_near], ends[~is_near]))


@pytest.mark.parametrize("task", [pytest.param("pairwise", marks=pytest.mark.exhaustive), "laplacian"])
def test_a_run_says_what_the_estimator_says(digits, task, tmp_path, monkeypatch):
    X, pairs = digits
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X)
    lines = [f"{i},{j},{'must' if s > 0 else 'cannot'}" for i, j, s in zip(pairs.i, pairs.j, pairs.sign, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")
    line = (task, "--data", "X.npz", "--pairs", "pairs.csv", "--threads", "1", "--holdout", "0.3")
    answer = call("fit", *line, "--out", "run.zarr")
    assert answer.code == 0
    check_run(answer, "run.zarr")
    check_verify("run.zarr")
    if task == "laplacian":
        check_other_model(
            "run.zarr", lambda held, fit: {"factor": np.linalg.cholesky(fit["Y"] + 1e-9 * np.eye(len(fit["Y"])))}
        )
    stored = dkl.open_run("run.zarr").report["quality"]
    if task == "laplacian":
        model = dkl.LaplacianKernelLearner(holdout=0.3, n_jobs=1).fit(X, pairs=pairs)
        assert model.result_.quality.as_dict() == stored
    (tmp_path / "run.zarr/report.json").unlink()  # as if it had been killed before its end
    (tmp_path / "X.npz").rename("away.npz")
    assert call("resume", "run.zarr").code == 0
    assert dkl.open_run("run.zarr").report["quality"] == stored

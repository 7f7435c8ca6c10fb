"""What a fit of pairs says of its outcome is true: SOLVED is proven, of the factor that is handed out, and nothing else is."""

import warnings

import numpy as np
import pytest
from command_line import FIT, call
from pairwise_cases import dense_targets, hard_rows, objective, recomputed_gap
from repeats import but_for
from scipy import sparse
from sklearn.datasets import load_digits, load_wine

import dkl
from dkl.baselines import NystromRegressor
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.pairwise.fit import make_problem
from dkl.estimators.pairwise.plan import finish_rank
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.stages import outcome_of
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.watch import Outcome
from dkl.stores.run import RunStore

NONE = np.empty((0, 2), int)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400], dkl.Pairs.from_labels(y[:400], n_must=100, n_cannot=100, random_state=0)


def learner(**settings):
    return dkl.PairwiseKernelLearner(**{"random_state": 0, "n_jobs": 1, **settings})


def proven(model, gamma=100.0, pairs=None):
    """The gap of factor_ by dense arithmetic: nothing of the certificate's but the lift."""
    V = np.asarray(model.factor_, float)
    laplacian, n = model.graph_.laplacian.toarray(), len(V)
    target, mask = dense_targets(n, pairs.must_link, pairs.cannot_link)
    gap, _ = recomputed_gap(model.certificate_, V, laplacian, target, mask.astype(float), gamma)
    return gap / objective(V @ V.T, laplacian, target, mask, gamma)


def test_residuals_alone_are_stationary_with_the_gap_and_a_remedy(digits):
    X, pairs = digits
    with pytest.warns(ConvergenceWarning, match=r"not converged \(stationary\): .*target_gap.* \(relative gap 0\."):
        model = learner(target_gap=None).fit(X, pairs=pairs)
    result = model.result_
    assert result.history[-1]["converged"] and model.certificate_.relative_gap > 0.01
    assert result.outcome is Outcome.STATIONARY and not result.outcome.converged
    assert result.proven == model.certificate_.relative_gap
    assert result.message.startswith(f"stationary (relative gap {result.proven:.2g}): ")


def test_who_has_set_a_goal_is_not_told_to_set_one(rng):
    X = rng.standard_normal((40, 3))
    with pytest.warns(ConvergenceWarning, match="raise max_iter, or loosen target_gap"):
        model = learner(max_iter=1, target_gap=1e-12).fit(X, must_link=[[0, 1], [4, 9]], cannot_link=[[2, 3], [5, 7]])
    assert model.result_.outcome is Outcome.ITERATION_LIMIT


@pytest.mark.parametrize("dtype", but_for(["float32"], ["float64", "float32"]))
def test_a_default_fit_is_solved_to_the_gap_that_it_says(digits, dtype):
    X, pairs = digits
    model = learner(dtype=dtype).fit(X, pairs=pairs)  # warnings are errors
    assert model.result_.outcome is Outcome.SOLVED
    assert model.certificate_.relative_gap <= PairwiseSettings().target_gap == 1e-2
    assert proven(model, pairs=pairs) <= 1e-2 * (1 + 1e-6)


@pytest.mark.parametrize("solver", but_for(["admm"], ["admm", "factored"]))
def test_single_precision_is_judged_by_what_is_handed_out(solver, digits):
    """Rounding to 24 bits costs a gap of 1e-8: the outcome follows."""
    X, pairs = digits
    with pytest.warns(ConvergenceWarning, match=r"stalled.*float64"):
        model = learner(solver=solver, dtype="float32", target_gap=1e-8).fit(X, pairs=pairs)
    assert model.certificate_.relative_gap > 1e-8
    assert model.result_.outcome is Outcome.STALLED
    assert learner(solver=solver, target_gap=1e-8).fit(X, pairs=pairs).result_.outcome is Outcome.SOLVED


def test_duplicates_outliers_and_wrong_pairs_do_not_stand_in_the_way():
    """Dozens of eigenvalues of S next to 0: within 1,000 iterations (20 of the factored solver for each of ADMM's)."""
    X, must, cannot = hard_rows(450, 1)
    model = learner(solver="factored", target_gap=1e-5, max_iter=50).fit(X, must_link=must, cannot_link=cannot)
    assert model.result_.outcome is Outcome.SOLVED
    assert proven(model, pairs=dkl.Pairs(must, cannot)) <= 1e-5 * (1 + 1e-6)


def test_what_may_be_said_of_a_gap():
    for ended in Outcome:
        assert outcome_of(ended, 1e-3, 1e-2, unproven=Outcome.STALLED) is Outcome.SOLVED
        for goal in (None, 1e-4):
            said = outcome_of(ended, 1e-3, goal, unproven=Outcome.STALLED)
            assert said is (Outcome.STALLED if ended is Outcome.SOLVED else ended)


def test_one_who_stops_the_end_of_admm_has_stopped_the_fit(digits):
    X, pairs = digits
    model = learner(solver="admm", tol=1e-2, target_gap=1e-6, callbacks=lambda row: bool(row.get("converged"))).fit(
        X, pairs=pairs
    )
    assert model.result_.history[-1]["converged"] and model.certificate_.relative_gap > 1e-6
    assert model.result_.outcome is Outcome.STOPPED


# -- the command ----------------------------------------------------------------------------------------------------------


def test_the_command_says_the_same_and_resume_takes_a_goal(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, pairs = digits
    np.savez("X.npz", X=X)
    lines = [f"{i},{j},{'must' if s > 0 else 'cannot'}" for i, j, s in zip(pairs.i, pairs.j, pairs.sign, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")
    answer = call(*FIT, "--target-gap", "none")
    assert answer.code == 3 and "run.zarr: stationary" in answer.out
    told = answer.err.splitlines()[-1]
    assert told.startswith("dkl: not converged: stationary (relative gap 0.") and "--target-gap" in told
    run = RunStore.open("run.zarr")
    assert run.report()["outcome"] == "stationary" and run.report()["settings"]["target_gap"] == "none"
    again = call("resume", "run.zarr")
    assert again.code == 3 and again.out.splitlines()[0].endswith("nothing to do") and "--target-gap" in again.err
    assert call("resume", "run.zarr", "--target-gap", "0.01").code == 0
    assert RunStore.open("run.zarr").report()["certificate"]["relative_gap"] <= 0.01
    assert call("verify", "run.zarr").code == 0
    answer = call(*FIT[:-1], "refused.zarr", "--gamma", "1e300")
    assert answer.code == 2 and not (tmp_path / "refused.zarr").exists()


# -- an optimum of zero ---------------------------------------------------------------------------------------------------


def two_groups():
    """Rows in two components, with must-links inside and cannot-links across."""
    X = np.random.default_rng(0).normal(size=(20, 4))
    return np.vstack([X, X + 1000]), np.array([[0, 1], [22, 23]]), np.array([[0, 20], [1, 21], [3, 30]])


@pytest.mark.parametrize("solver", ["admm", "factored"])
@pytest.mark.parametrize("goal", [1e-2, 1e-4])
def test_an_optimum_of_zero_is_reached(solver, goal, tmp_path):
    X, must, cannot = two_groups()
    settings = {"laplacian": "unnormalized", "n_neighbors": 5, "solver": solver, "target_gap": goal}
    model = learner(**settings, work_dir=tmp_path).fit(X, must_link=must, cannot_link=cannot)
    K = model.factor_ @ model.factor_.T
    assert model.result_.outcome is Outcome.SOLVED
    np.testing.assert_allclose(K, np.kron(np.eye(2), np.ones((20, 20))), atol=1e-3)
    assert dkl.open_run(model.run_path_).verify() and all(one.agrees for one in dkl.open_run(model.run_path_).verify())
    only_must = learner(**settings).fit(X[:20], must_link=must[:1], cannot_link=NONE)
    assert only_must.result_.outcome is Outcome.SOLVED and only_must.certificate_.objective < 1e-6


def test_a_descent_to_zero_ends_before_it_underflows():
    """f falls by a constant factor for ever where its least is 0; the floor ends that, where f counts as 0."""
    X, must, cannot = two_groups()
    W = sparse.csr_array(np.kron(np.eye(2), np.ones((20, 20)) - np.eye(20)))
    graph = learner(affinity="precomputed", laplacian="unnormalized").fit(W, must_link=must, cannot_link=cannot).graph_
    problem = make_problem(graph.laplacian, dkl.Pairs(must, cannot), 1000.0)
    found = FactoredPairwise(problem.laplacian, problem.targets, 1000.0)
    start = found.padded(np.random.default_rng(1).normal(size=(40, 3)))  # some rest at a saddle point
    ended = minimize(found, start, tol=0.0, progress=1e-4, max_iter=5000)
    assert ended.n_iter < 500 and ended.objective < 1e-6
    # Where it is carried on all the same, products of the gradient underflow at last: no division by zero.
    minimize(found, found.padded(1e-162 * np.asarray(start)), tol=0.0, max_iter=50)


# -- what used to end in an error from inside ------------------------------------------------------------------------------


def test_a_best_multiple_of_zero_starts_anew():
    X = np.random.default_rng(0).normal(size=(40, 4))
    model = learner(target_gap=1e-3, gamma=0.01, max_iter=20).fit(X, must_link=[[0, 1]], cannot_link=[[2, 3]])
    assert model.result_.outcome is Outcome.SOLVED and model.certificate_.relative_gap <= 1e-3


@pytest.mark.parametrize("solver", but_for(["admm"], ["admm", "factored"]))
@pytest.mark.parametrize("laplacian", but_for(["unnormalized"], ["normalized", "unnormalized"]))
def test_gammas_that_doubles_cannot_hold_beside_the_laplacian(solver, laplacian, monkeypatch):
    X = (load_wine().data / load_wine().data.std(axis=0))[::3]
    given = {"must_link": [[0, 1], [20, 21]], "cannot_link": [[0, 20], [1, 56]]}
    for gamma in (1e300, 1e14, 1e-14, 1e-300):
        with pytest.raises(InputError, match=r"gamma: .*Laplacian"):
            learner(solver=solver, laplacian=laplacian, gamma=gamma).fit(X, **given)
    for gamma in (1e11, 1e6, 1e-6, 1e-11):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = learner(solver=solver, laplacian=laplacian, gamma=gamma, max_iter=30).fit(X, **given)
        solved = model.result_.outcome is Outcome.SOLVED
        assert solved == (model.certificate_.relative_gap <= 1e-2)


def test_affinities_whose_sums_overflow_are_refused():
    W = np.full((12, 12), 1e308)
    np.fill_diagonal(W, 0)
    for laplacian in ("normalized", "unnormalized"):
        with pytest.raises(InputError, match=r"affinity\[0\]: .*overflow"):
            learner(affinity="precomputed", laplacian=laplacian).fit(W, must_link=[[0, 1]], cannot_link=[[2, 3]])


@pytest.mark.parametrize("columns", [4, 20])
def test_patterns_whose_distances_underflow_are_refused(columns):
    X = np.random.default_rng(0).normal(size=(60, columns))
    for scale in (1e-150, 1e-160, 1e-200):
        with pytest.raises(InputError, match=r"X: .*underflow"):
            learner(n_neighbors=5).fit(scale * X, must_link=[[0, 1]], cannot_link=[[2, 3]])
    equal = learner(n_neighbors=2).fit(np.repeat(X[:5], 12, axis=0), must_link=[[0, 1]], cannot_link=[[2, 30]])
    assert equal.result_.outcome is Outcome.SOLVED, "rows that are duplicates may be at distance 0"


@pytest.mark.parametrize("kind", [dkl.LowRankKernelRegressor, NystromRegressor])
def test_regression_targets_whose_squares_underflow_are_refused(kind, tmp_path, monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 3))
    y = 1e-160 * np.sin(X[:, 0])
    with pytest.raises(InputError, match=r"y: .*too small"):
        kind().fit(X, y)
    kind().fit(X, 0 * y)
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=y)
    answer = call("fit", "regression", "--no-picture", "--data", "X.npz", "--out", "run.zarr")
    assert answer.code == 2 and "too small" in answer.err and not (tmp_path / "run.zarr").exists()


# -- memory ---------------------------------------------------------------------------------------------------------------


def test_the_finish_keeps_to_the_memory_limit(digits):
    X, pairs = digits
    graph = learner().fit(X, pairs=pairs).graph_
    problem = make_problem(graph.laplacian, pairs, 100.0)
    ranks = [
        finish_rank(problem, PairwiseSettings(memory_limit=PROCESS_BASE + room))
        for room in (0, 1_000_000, 1_600_000, 2_000_000, 10_000_000)
    ]
    assert ranks[0] == 0 and ranks[-1] == 64 and ranks == sorted(ranks) and len(set(ranks)) >= 4
    assert finish_rank(problem, PairwiseSettings()) == 64

"""Learners in the basis of smooth eigenvectors: what they promise of manifolds, pairs, unseen rows and bad input."""

import dataclasses
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import call
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import dkl
from dkl.errors import ConvergenceWarning, DataWarning, InconsistentPairsError, InputError, MemoryBudgetError
from dkl.estimators.qsdp.basis import fit
from dkl.estimators.qsdp.laplacian.fit import PropagationProblem
from dkl.linalg.symmetric.psd_quadratic import svec
from dkl.problems.qsdp.problem import propagation, svec_form
from dkl.resources import blas_controller
from dkl.runs.recomputed_basis import Squares, of_solution
from dkl.solvers.qsdp.conic import solve_conic
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.watch import Outcome


# A graph of so many neighbors is connected on the checks' blobs and on iris.
@parametrize_with_checks([dkl.MaximumVarianceUnfolding(n_neighbors=60)])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
@parametrize_with_checks([dkl.LaplacianKernelLearner(random_state=0)])
def test_scikit_learn_s_contract_of_pairs(estimator, check):
    check(estimator)


def strip(n=240, seed=0):
    """(rows of a rolled strip, their places on it)."""
    rng = np.random.default_rng(seed)
    place = np.stack([np.sort(rng.random(n)) * 9.0, rng.random(n) * 3.0], axis=1)
    angle = 1.0 + place[:, 0] / 3.0
    return np.stack([2.0 * np.cos(angle), 2.0 * np.sin(angle), place[:, 1]], axis=1), place


def correlations(embedding, place):
    """Of each coordinate of the places with the best linear function of the embedding."""
    basis = np.linalg.qr(embedding - embedding.mean(axis=0))[0]
    centred = place - place.mean(axis=0)
    return np.linalg.norm(basis.T @ centred, axis=0) / np.linalg.norm(centred, axis=0)


@pytest.fixture(scope="module")
def unfolded():
    rows, place = strip()
    return rows, place, dkl.MaximumVarianceUnfolding(n_basis=20, n_neighbors=6).fit(rows)


def test_a_rolled_strip_is_unrolled(unfolded):
    rows, place, model = unfolded
    assert correlations(model.embedding_, place).min() > 0.9
    assert correlations(model.embedding_, place)[0] > 0.98
    assert model.result_.outcome is Outcome.SOLVED and model.certificate_.relative_gap <= 1e-6
    K = model.basis_ @ model.basis_kernel_ @ model.basis_.T
    np.testing.assert_allclose(model.basis_.T @ model.basis_, np.eye(20), atol=1e-10)
    assert np.abs(model.basis_.sum(axis=0)).max() < 1e-9  # the constant vector is not among them
    values = np.linalg.eigvalsh(K)[::-1]
    np.testing.assert_allclose((model.embedding_**2).sum(axis=0), values[:2], rtol=1e-8)


def test_edges_count_once_and_the_objective_is_that_of_the_paper(unfolded):
    rows, _, model = unfolded
    i, j = model.edges_.T
    assert (i < j).all() and len(np.unique(model.edges_, axis=0)) == len(model.edges_)
    K = model.basis_ @ model.basis_kernel_ @ model.basis_.T
    stretched = K[i, i] - 2 * K[i, j] + K[j, j] - ((rows[i] - rows[j]) ** 2).sum(axis=1)
    wanted = model.nu_ * (stretched**2).sum() - np.trace(model.basis_kernel_)
    assert model.certificate_.objective == pytest.approx(wanted, rel=1e-8)


def test_scale_of_the_rows_scales_the_embedding(unfolded):
    rows, _, model = unfolded
    scaled = clone(model).fit(100.0 * rows)
    np.testing.assert_allclose(np.abs(scaled.embedding_), 100.0 * np.abs(model.embedding_), rtol=0.02, atol=2.0)


SPIRAL = np.linspace(0, 4, 60)[:, None] * np.stack(
    [np.cos(np.linspace(0, 4, 60)), np.sin(np.linspace(0, 4, 60))], axis=1
)


@pytest.mark.parametrize("scale", [1e-130, 1e-82, 1e-40, 1e40, 1e78, 1e125])
@pytest.mark.parametrize("m", [10, 40])
def test_any_scale_of_the_rows_is_unfolded_alike(m, scale):
    """Fourth powers of their distances are beyond double precision, and their squares beyond single."""
    wanted, found = (dkl.MaximumVarianceUnfolding(n_basis=m).fit(SPIRAL * size) for size in (1.0, scale))
    assert found.result_.outcome is Outcome.SOLVED and found.n_iter_ == wanted.n_iter_
    np.testing.assert_allclose(found.embedding_ / scale, wanted.embedding_, atol=1e-5)
    assert found.nu_ * scale * scale == pytest.approx(wanted.nu_)


def test_unseen_rows_lie_among_their_neighbours(unfolded):
    rows, place, model = unfolded
    np.testing.assert_allclose(model.transform(rows), model.embedding_)
    others, where = strip(seed=1)
    assert correlations(model.transform(others), where)[0] > 0.98


def test_pairs_are_learned_and_all_solvers_agree():
    rows, place = strip(60)
    y = (place[:, 0] > 4.5).astype(int)
    ends = np.random.default_rng(0).permutation(60)[:40].reshape(2, -1).T
    same = y[ends[:, 0]] == y[ends[:, 1]]
    given = {"must_link": ends[same], "cannot_link": ends[~same]}
    found = {s: dkl.LaplacianKernelLearner(6, solver=s).fit(rows, **given) for s in ("low-rank", "sqlp", "scsdp")}
    best = found["low-rank"]
    np.testing.assert_allclose(best.embedding_ @ best.embedding_.T, best.basis_ @ best.basis_kernel_ @ best.basis_.T)
    for name, model in found.items():
        assert model.certificate_.objective == pytest.approx(best.certificate_.objective, rel=1e-5), name
    B, b = svec_form(propagation(best.basis_, ends[same], ends[~same]))
    y6 = svec(best.basis_kernel_)
    wanted = ((B @ y6) ** 2).sum() + b @ y6 + 60 + same.sum()
    assert best.certificate_.objective == pytest.approx(wanted, rel=1e-9)


def test_pairs_have_weights():
    """One wrong pair among right ones: what it weighs is what becomes of it."""
    rows, place = strip(60)
    y = (place[:, 0] > 4.5).astype(int)
    right, left = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    must = np.concatenate([np.stack([right[:6], right[6:12]], 1), [[right[0], left[0]]]])
    cannot = np.stack([right[:5], left[:5]], 1)[1:]
    model, errors = dkl.LaplacianKernelLearner(6), []
    for weight in (1e-3, 1.0, 1e3):
        weights = np.r_[np.ones(6), weight, np.ones(4)]
        E = model.fit(rows, pairs=dkl.Pairs(must, cannot, weights=weights)).embedding_
        errors.append(abs(E[right[0]] @ E[left[0]] - 1.0))
    assert errors[0] > errors[1] > errors[2] and errors[2] < 1e-2


@pytest.mark.parametrize("weight", [1e2, 1e4, 1e8])
def test_heavy_pairs_are_proven_and_verified(weight):
    """The sum of all terms is indefinite then. Against what Clarabel finds, and the bound as `dkl verify` recomputes it."""
    t = np.linspace(0, 4, 60)
    X, pairs = (
        np.column_stack([t * np.cos(t), t * np.sin(t)]),
        np.random.default_rng(1).permutation(60)[:16].reshape(-1, 2),
    )
    given = dkl.Pairs(pairs[:4], pairs[4:], weights=weight * np.linspace(0.1, 1, 8))
    model = dkl.LaplacianKernelLearner(n_basis=8, n_neighbors=8).fit(X, pairs=given)
    found = model.certificate_
    assert model.result_.outcome is Outcome.SOLVED and found.relative_gap <= model.tol
    problem = propagation(model.basis_, given.must_link, given.cannot_link, given.weights)
    identity = problem.map.see(np.eye(8)).squares()
    assert np.linalg.eigvalsh(problem.map.adjoint(identity))[0] < 0, "else any certificate would do"
    exact = solve_conic(problem, "direct", tol=1e-9).certificate
    assert found.bound <= exact.objective and exact.bound <= found.objective + 1e-9 * found.size
    assert found.objective <= exact.objective + found.gap
    ends = np.concatenate([np.repeat(np.arange(60)[:, None], 2, axis=1), given.must_link, given.cannot_link])
    weights = np.sqrt(np.concatenate([np.ones(60), given.weights]))
    squares = Squares(model.basis_, ends, False, weights, problem.targets, problem.C)
    # A run keeps the dual that its certificate is of, the model does not: of a solve of our own, whose bits need not be the model's.
    solved = solve_low_rank(problem, tol=model.tol)
    told = {"certificate": dataclasses.asdict(solved.certificate)}
    compared = {one.name: one for one in of_solution(told, squares, solved.factor @ solved.factor.T, solved.dual)}
    assert not [one for one in compared.values() if not one.agrees]
    assert {"objective", "gap", "bound", "relative gap"} <= set(compared) and all(
        one.agrees for one in compared.values()
    )


def test_seconds_of_the_quality_are_not_of_the_solver_too(monkeypatch):
    """A conic solver has no use for the kernel without the held-out pairs: it is found after the solve."""
    clock, (rows, place) = [0.0], strip(60)
    hold_out = PropagationProblem.hold_out

    def slow(problem, call):
        clock[0] += 100.0
        hold_out(problem, call)

    monkeypatch.setattr(PropagationProblem, "hold_out", slow)
    monkeypatch.setattr(fit, "time", SimpleNamespace(perf_counter=lambda: clock[0], monotonic=time.monotonic))
    monkeypatch.setattr(
        fit, "solve_conic", lambda problem, solver, memory_limit, **options: solve_low_rank(problem, **options)
    )
    model = dkl.LaplacianKernelLearner(n_basis=8, solver="sqlp", random_state=0).fit(rows, place[:, 0] > 4.5)
    assert clock[0] == 100.0 and model.result_.seconds["solve"] == 0.0


def test_plans_of_command_and_estimator_agree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, _ = strip(60)
    np.save("rows.npy", rows)
    Path("pairs.csv").write_text("i,j,sign\n0,1,1\n0,50,-1\n")
    options = ["--n-basis", "8", "--holdout", "0", "--memory-limit", "2 GB"]
    given = ["--data", "rows.npy", "--pairs", "pairs.csv"]
    assert call("fit", "laplacian", *given, *options, "--out", "run.zarr").code == 0
    pairs = {"must_link": [[0, 1]], "cannot_link": [[0, 50]]}
    model = dkl.LaplacianKernelLearner(n_basis=8, holdout=0, memory_limit="2 GB").fit(rows, **pairs)
    of_run, here = dkl.open_run("run.zarr").report["plan"]["stages"], model.result_.plan["stages"]
    found = "finding 8 eigenvectors"
    assert of_run[found] - rows.nbytes == here[found]  # a command holds rows of its own


def test_small_matrices_are_work_of_one_thread(monkeypatch):
    """Several wait for each other: with two on two busy processors a fit took fifty times as long."""
    seen, solve = [], fit.solve_low_rank

    def solved(problem, **options):
        seen.extend(one["num_threads"] for one in blas_controller().info() if one["user_api"] == "blas")
        return solve(problem, **options)

    monkeypatch.setattr(fit, "solve_low_rank", solved)
    with threadpool_limits(2, user_api="blas"):
        dkl.LaplacianKernelLearner(6).fit(strip(60)[0], np.arange(60) // 30)
    assert seen and set(seen) == {1}


def test_labels_color_the_unfolding():
    rows, place = strip(80)
    across = (place[:, 1] > 1.5).astype(int)  # the narrow side, which variance alone gives the least room
    plain, colored = (
        dkl.MaximumVarianceUnfolding(1, n_basis=12, n_neighbors=8, colored=colored).fit(rows, across)
        for colored in (False, True)
    )
    apart = [abs(np.corrcoef(model.embedding_[:, 0], across)[0, 1]) for model in (plain, colored)]
    assert apart[0] < 0.3 and apart[1] > 0.5
    assert colored.certificate_.relative_gap <= 1e-6
    one_hot = clone(colored).fit(rows, np.eye(2)[across])
    np.testing.assert_allclose(one_hot.embedding_, colored.embedding_, atol=1e-10)
    K, H, i, j = colored.basis_ @ colored.basis_kernel_ @ colored.basis_.T, np.eye(80) - 1 / 80, *colored.edges_.T
    stretched = K[i, i] - 2 * K[i, j] + K[j, j] - ((rows[i] - rows[j]) ** 2).sum(axis=1)
    wanted = colored.nu_ * (stretched**2).sum() - np.trace(H @ K @ H @ (across[:, None] == across))
    assert colored.certificate_.objective == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("form", ["numbers", "text", "objects"])
def test_rows_without_a_label_do_not_color(form):
    """The dependence is that of the labeled rows alone: tr(H K_l H L_l), H about their own mean."""
    rows, place = strip(80)
    across = (place[:, 1] > 1.5).astype(int)
    is_labeled = np.arange(80) % 3 > 0
    numbers = np.where(is_labeled, across, -1)
    y = {
        "numbers": numbers,
        "text": np.array(["-1", "left", "right"])[numbers + 1],
        "objects": [None if value < 0 else "ab"[value] for value in numbers],
    }[form]
    model = dkl.MaximumVarianceUnfolding(1, n_basis=12, n_neighbors=8, colored=True).fit(rows, y)
    K, i, j = model.basis_ @ model.basis_kernel_ @ model.basis_.T, *model.edges_.T
    stretched = K[i, i] - 2 * K[i, j] + K[j, j] - ((rows[i] - rows[j]) ** 2).sum(axis=1)
    m = int(is_labeled.sum())
    H, L = np.eye(m) - 1 / m, across[is_labeled][:, None] == across[is_labeled]
    dependence = np.trace(H @ K[np.ix_(is_labeled, is_labeled)] @ H @ L)
    assert model.certificate_.objective == pytest.approx(model.nu_ * (stretched**2).sum() - dependence, rel=1e-8)


def test_equal_rows_stay_together():
    rows = np.repeat(strip(40)[0], 2, axis=0)
    model = dkl.MaximumVarianceUnfolding(n_basis=8, n_neighbors=6).fit(rows)
    i, j = model.edges_.T
    length = np.linalg.norm(model.embedding_[i] - model.embedding_[j], axis=1)
    is_equal = (rows[i] == rows[j]).all(axis=1)
    assert is_equal.sum() == 40 and length[is_equal].mean() < 0.3 * length[~is_equal].mean()


ROWS = strip(30)[0]
COLORED = dkl.MaximumVarianceUnfolding(colored=True)
PART = np.concatenate([ROWS, ROWS + 100.0])
PAIRS = {"must_link": [[0, 1], [1, 2]], "cannot_link": [[0, 2]]}


@pytest.mark.parametrize(
    ("model", "X", "given", "error", "message"),
    [
        (dkl.MaximumVarianceUnfolding(n_basis=30), ROWS, {}, InputError, "n_basis: more eigenvectors"),
        (dkl.LaplacianKernelLearner(30), ROWS, {"y": np.arange(30) % 2}, InputError, "at most 29 of 30"),
        (dkl.MaximumVarianceUnfolding(n_basis=0), ROWS, {}, InputError, "'n_basis' parameter.*integer >= 1"),
        (dkl.MaximumVarianceUnfolding(nu=0.0), ROWS, {}, InputError, "'nu' parameter.*> 0"),
        (dkl.MaximumVarianceUnfolding(), np.ones((9, 2)), {}, InputError, "all rows are equal"),
        (
            dkl.MaximumVarianceUnfolding(),
            ROWS * 1e140,
            {},
            InputError,
            "X.[0-9]+, [0-9]+.: a value is so large that distances overflow",
        ),
        (dkl.MaximumVarianceUnfolding(), ROWS * 1e-160, {}, InputError, "X: .*underflow; scale X"),
        (COLORED, ROWS, {}, InputError, "requires y to be passed"),
        (COLORED, ROWS, {"y": np.zeros(30)}, InputError, "y: all labeled rows are of one class"),
        (COLORED, ROWS, {"y": np.ones((30, 2))}, InputError, "y: all rows are equal"),
        (COLORED, ROWS, {"y": np.eye(2)}, InputError, r"y: .*wanted \(30, k\)"),
        (
            dkl.LaplacianKernelLearner(),
            ROWS,
            {"pairs": dkl.Pairs([[0, 1]], [[0, 9]], weights=[1e300, 1.0])},
            InputError,
            "weights of pairs: too large for double precision; got 1e.300; wanted at most 1e.12",
        ),
        (
            dkl.LaplacianKernelLearner(contradictions="raise"),
            ROWS,
            PAIRS,
            InconsistentPairsError,
            "cannot_link.*0-1-2",
        ),
        (dkl.MaximumVarianceUnfolding(memory_limit="1 MB"), ROWS, {}, MemoryBudgetError, "raise memory_limit"),
        (
            dkl.LaplacianKernelLearner(200, solver="scsdp"),
            strip(240)[0],
            {"y": np.arange(240) % 2},
            MemoryBudgetError,
            'solver="scsdp" takes.*smaller n_basis: [0-9]+ fit, or solver="low-rank"',
        ),
    ],
)
def test_bad_input_is_one_line(model, X, given, error, message):
    with pytest.raises(error, match=message) as caught:
        model.fit(X, **given)
    assert "\n" not in str(caught.value)


def test_a_stalled_solver_is_not_told_to_be_taken():
    with pytest.warns(ConvergenceWarning, match="stalled.*loosen tol") as caught:
        model = dkl.MaximumVarianceUnfolding(n_basis=8, tol=1e-300).fit(ROWS)
    assert model.result_.outcome is Outcome.STALLED
    assert not any("low-rank" in str(one.message) for one in caught) and "low-rank" not in model.result_.remedy
    with pytest.warns(ConvergenceWarning, match='or take solver="low-rank"'):
        dkl.MaximumVarianceUnfolding(n_basis=8, tol=1e-300, solver="sqlp").fit(ROWS)


def test_labels_beside_pairs_are_told_to_be_unused():
    pairs = dkl.Pairs([[0, 1]], [[0, 9]])
    with pytest.warns(DataWarning, match="y is not learned from") as caught:
        dkl.LaplacianKernelLearner(4).fit(ROWS, np.arange(30) % 2, pairs=pairs)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("colored", [False, True])
def test_components_are_joined_by_the_shortest_edge(colored):
    y = np.repeat([0, 1], 30)
    with pytest.warns(DataWarning, match=r"had 2 components \(30, 30 rows\), joined by the shortest edge between them"):
        model = dkl.MaximumVarianceUnfolding(n_neighbors=4, n_basis=20, colored=colored).fit(PART, y)
    i, j = np.unravel_index(np.argmin(cdist(PART[:30], PART[30:])), (30, 30))
    assert model.edges_[y[model.edges_[:, 0]] != y[model.edges_[:, 1]]].tolist() == [[i, 30 + j]]
    if not colored:
        shown = np.linalg.norm(model.embedding_[i] - model.embedding_[30 + j])
        assert 1 / 2 < shown / np.linalg.norm(PART[i] - PART[30 + j]) < 2


def test_a_disconnected_graph_is_a_basis_for_pairs():
    y = np.repeat([0, 1], 30)
    model = dkl.LaplacianKernelLearner(6, n_neighbors=5).fit(PART, must_link=[[0, 1]], cannot_link=[[0, 40]])
    K = model.embedding_ @ model.embedding_.T
    assert K[np.ix_(y == 0, y == 1)].max() < 0.1 < 0.8 < np.diag(K).mean()


def test_callbacks_see_the_history_and_a_limit_warns():
    rows = strip(60)[0]
    seen = []
    model = dkl.MaximumVarianceUnfolding(n_basis=8, callbacks=seen.append).fit(rows)
    assert seen == model.result_.history and model.n_iter_ == seen[-1]["iteration"]
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        dkl.MaximumVarianceUnfolding(n_basis=8, max_iter=1, tol=1e-14).fit(rows)


def test_a_kernel_of_one_constant_eigenvector_is_said_so():
    with pytest.warns(
        DataWarning, match="^n_basis=1 eigenvector of a connected graph is constant: .* raise n_basis, or learn"
    ):
        dkl.LaplacianKernelLearner(holdout=0).fit(np.arange(5.0)[:, None], [0, 0, 1, 1, 1])

"""Hard constraints of the learners: distances and pairs that hold, what is proven, unseen rows, and bad input."""

import numpy as np
import pytest
from sklearn.datasets import make_swiss_roll

import dkl
from dkl.errors import DataWarning, InconsistentPairsError, InputError, MemoryBudgetError
from dkl.solvers.watch import Outcome


def rolled(n):
    """(rows of a rolled strip, their places on it)."""
    rng = np.random.default_rng(0)
    place = np.stack([np.sort(rng.random(n)) * 9.0, rng.random(n) * 3.0], axis=1)
    angle = 1.0 + place[:, 0] / 3.0
    return np.stack([2.0 * np.cos(angle), 2.0 * np.sin(angle), place[:, 1]], axis=1), place


@pytest.fixture(scope="module")
def unfolded():
    rows, place = rolled(60)
    model = dkl.MaximumVarianceUnfolding(n_neighbors=4, constraints="at-most", standardize=False, tol=1e-5).fit(rows)
    return rows, place, model


def learned(model, rows):
    """(the kernel, what squared distances of its edges are beyond those of the rows, the latter)."""
    K = model.basis_ @ model.basis_kernel_ @ model.basis_.T
    i, j = model.edges_.T
    squared = np.square(rows[i] - rows[j]).sum(axis=1)
    return K, K[i, i] + K[j, j] - 2 * K[i, j] - squared, squared


def test_a_rolled_strip_is_unrolled_and_no_edge_becomes_longer(unfolded):
    rows, place, model = unfolded
    proven, result = model.certificate_, model.result_
    assert result.outcome is Outcome.SOLVED and max(proven.relative_gap, proven.infeasibility) <= 1e-5
    K, longer, squared = learned(model, rows)
    assert np.linalg.norm(np.maximum(longer, 0)) <= 1.001e-5 * np.linalg.norm(squared)
    assert np.abs(K.sum(axis=0)).max() <= 1e-9 * np.trace(K)
    assert proven.objective == pytest.approx(-np.trace(K), rel=1e-9) and model.nu_ == np.inf
    # More than of the rows themselves, which keep all distances too.
    assert np.trace(K) > 1.2 * np.square(rows - rows.mean(axis=0)).sum()
    assert abs(np.corrcoef(model.embedding_[:, 0], place[:, 0])[0, 1]) > 0.95


def test_a_spiral_keeps_its_neighbors_distances_and_becomes_a_line():
    angle = np.linspace(1, 7, 40)
    rows = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    model = dkl.MaximumVarianceUnfolding(1, n_neighbors=1, constraints="hard", standardize=False)
    model.fit(rows)
    _, longer, squared = learned(model, rows)
    assert model.result_.outcome is Outcome.SOLVED
    assert np.linalg.norm(longer) <= 1.001e-6 * np.linalg.norm(squared)
    assert abs(np.corrcoef(model.embedding_[:, 0], angle)[0, 1]) > 0.95


@pytest.mark.parametrize(("k", "stages"), [(2, {"solve"}), (6, {"interior"})])
def test_the_method_that_suits_the_edges_solves_it(k, stages):
    X = make_swiss_roll(100, random_state=0)[0]
    if k == 2:
        angle = np.linspace(1, 7, 100)
        X = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    model = dkl.MaximumVarianceUnfolding(n_neighbors=k, constraints="hard", standardize=False, holdout=0).fit(X)
    _, longer, squared = learned(model, X)
    assert model.result_.outcome is Outcome.SOLVED and np.linalg.norm(longer) <= 1.01e-6 * np.linalg.norm(squared)
    assert {row["stage"] for row in model.result_.history} == stages


def test_quality_unseen_rows_kernel_and_plot_are_those_of_the_soft_form(unfolded):
    rows, _, model = unfolded
    assert model.result_.quality.measure == "trustworthiness"
    assert model.transform(rows[:5] + 1e-9).shape == (5, 2)
    assert model.kernel_matrix(rows[:5]).shape == (5, 5)
    assert len(model.plot().axes) >= 4
    assert model.result_.measure == "relative gap and infeasibility" and model.result_.history[-1]["rank"] >= 2


def test_pairs_hold_exactly():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.normal(size=(60, 2)) + 4.0 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    must, cannot = np.array([[0, 1], [1, 2], [20, 25], [41, 44]]), np.array([[0, 21], [2, 40], [30, 50]])
    model = dkl.LaplacianKernelLearner(n_neighbors=8, constraints="hard", holdout=0).fit(
        X, must_link=must, cannot_link=cannot
    )
    proven, K = model.certificate_, model.embedding_ @ model.embedding_.T
    assert model.result_.outcome is Outcome.SOLVED and max(proven.relative_gap, proven.infeasibility) <= 1e-6
    np.testing.assert_allclose(np.diag(K), 1.0, atol=1e-5)
    np.testing.assert_allclose(K[tuple(must.T)], 1.0, atol=1e-5)
    np.testing.assert_allclose(K[tuple(cannot.T)], 0.0, atol=1e-5)
    clusters = dkl.KernelKMeans(n_clusters=3, random_state=0).fit_predict(model.embedding_)
    assert dkl.pair_accuracy(y, clusters) > 0.85


def test_the_quality_of_pairs_is_of_held_out_ones():
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 60)
    X = rng.normal(size=(120, 2)) + 3.0 * y[:, None]
    ends = rng.permutation(120).reshape(-1, 2)
    same = y[ends[:, 0]] == y[ends[:, 1]]
    model = dkl.LaplacianKernelLearner(n_neighbors=8, constraints="hard", holdout=0.5, tol=1e-4).fit(
        X, must_link=ends[same], cannot_link=ends[~same]
    )
    quality = model.result_.quality
    assert quality.measure == "held-out AUC of pairs" and quality.value > 0.9


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@pytest.mark.parametrize("constraints", ["soft", "hard"])
def test_a_warning_of_the_quality_names_the_line_that_fitted(constraints):
    """Rows in a line, and a graph that joins hardly any of them: distances say more than the kernel."""
    X = np.sort(np.random.default_rng(0).normal(size=(100, 1)), axis=0)
    ends = np.random.default_rng(1).permutation(100).reshape(-1, 2)
    same = (ends[:, 0] < 50) == (ends[:, 1] < 50)
    model = dkl.LaplacianKernelLearner(constraints=constraints, sigma=1e-9, holdout=0.5)
    with pytest.warns(DataWarning) as warned:
        model.fit(X, must_link=ends[same], cannot_link=ends[~same])
    places = [one.filename for one in warned if "AUC" in str(one.message)]
    assert places == [__file__]


ROWS = np.random.default_rng(0).normal(size=(40, 3))


@pytest.mark.parametrize(
    ("model", "given", "error", "message"),
    [
        (dkl.MaximumVarianceUnfolding(constraints="firm"), {}, InputError, "'constraints' parameter"),
        (dkl.MaximumVarianceUnfolding(constraints="hard", nu=1.0), {}, InputError, "nu: no effect with"),
        (dkl.MaximumVarianceUnfolding(constraints="hard", n_basis=5), {}, InputError, "n_basis: no effect with"),
        (dkl.MaximumVarianceUnfolding(constraints="hard", colored=True), {}, InputError, "colored: no effect with"),
        (dkl.MaximumVarianceUnfolding(constraints="hard", solver="sqlp"), {}, InputError, "solver: no effect with"),
        (
            dkl.MaximumVarianceUnfolding(constraints="hard", memory_limit="1 MB"),
            {},
            MemoryBudgetError,
            "raise memory_limit",
        ),
        (
            dkl.LaplacianKernelLearner(constraints="hard", n_basis=5),
            {"y": np.arange(40) % 2},
            InputError,
            "n_basis: no effect",
        ),
        (
            dkl.LaplacianKernelLearner(constraints="hard"),
            {"pairs": dkl.Pairs(np.array([[0, 1]]), np.array([[1, 2]]), weights=np.array([1.0, 2.0]))},
            InputError,
            "weights of pairs: no effect",
        ),
    ],
)
def test_bad_input_is_one_error_before_any_work(model, given, error, message):
    with pytest.raises(error, match=message):
        model.fit(ROWS, **given)


def test_pairs_that_contradict_each_other_are_refused():
    """At once, and by the one remedy there is; without them the others hold."""
    must, cannot = np.array([[0, 1], [1, 2]]), np.array([[0, 2], [3, 4]])
    given = {"must_link": must, "cannot_link": cannot}
    for rule in ("keep", "raise"):
        model = dkl.LaplacianKernelLearner(constraints="hard", contradictions=rule, holdout=0)
        with pytest.raises(InconsistentPairsError, match=r"must-linked through 0-1-2.*drop") as refused:
            model.fit(ROWS, **given)
        assert ('"keep"' in str(refused.value)) == (rule == "raise")
    E = dkl.LaplacianKernelLearner(constraints="hard", contradictions="drop", holdout=0).fit(ROWS, **given).embedding_
    np.testing.assert_allclose([E[0] @ E[2], E[3] @ E[4]], [1.0, 0.0], atol=1e-5)

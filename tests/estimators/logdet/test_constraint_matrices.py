"""Learning from any symmetric matrices: against a general minimiser, as triplets and pairs, in any order, and what is refused."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from logdet_cases import SMOOTH_LOSSES, matrices, objective, optimum
from sklearn.model_selection import cross_val_score

import dkl
from dkl.errors import DataWarning, InputError, MemoryBudgetError
from dkl.estimators.base.rules import MATRIX_LOSSES, TRIPLET_LOSSES
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import as_loss

N, C = 6, 5
SMOOTH = [name for name in MATRIX_LOSSES if name in SMOOTH_LOSSES]
LEARNERS = [dkl.LogDetKernelLearner, dkl.LogDetMetricLearner]


@pytest.fixture
def X(rng):
    return rng.normal(size=(N, 3))


@pytest.fixture
def A(rng):
    """Indefinite matrices (c, n, n) of many entries, which touch all rows."""
    A = rng.normal(size=(C, N, N)) * (rng.random((C, N, N)) < 0.5)
    A[:, range(N), range(N)] += 0.3
    return A + A.transpose(0, 2, 1)


def triplets_of(rng, n, c):
    """Distinct triplets in their order, none the reverse of another."""
    found = np.array([rng.permutation(n)[:3] for _ in range(c)])
    _, first = np.unique(np.sort(found[:, 1:], axis=1) + n * found[:, :1], axis=0, return_index=True)
    return np.unique(found[first], axis=0)


def learned(learner, X, **given):
    return learner(0.5, loss=given.pop("loss", "log"), standardize=False, tol=1e-9, holdout=0).fit(X, **given)


@pytest.mark.parametrize("loss", SMOOTH)
def test_the_kernel_is_the_least_point(loss, X, A):
    """F by its definition, at its least by scipy, and the kernel there."""
    A = 0.05 * A if loss == "linear" else A  # of a large gamma there is no least point
    model = dkl.LogDetKernelLearner(0.5, loss=loss, kernel="rbf", holdout=0, tol=1e-9)
    K = model.fit(X, constraints=[sp.csr_array(one) for one in A]).kernel_matrix(X)
    K0 = dkl.LogDetKernelLearner(1e-12, loss=loss, kernel="rbf", holdout=0).fit(X, constraints=list(A)).kernel_matrix(X)
    least, wanted = optimum(K0, A, as_loss(loss), 0.5 / N)
    assert objective(K, K0, A, as_loss(loss), 0.5 / N) == pytest.approx(least, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(K, wanted, atol=2e-4 * np.abs(K0).max())
    assert model.certificate_.relative_gap <= 1e-9
    assert model.certificate_.objective == pytest.approx(least, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("loss", SMOOTH)
def test_the_metric_is_the_least_point(loss, X, A):
    """Constraints on Z W Z' are those on W of Z' A_t Z: F of these at its least by scipy, and the metric there."""
    A, Z = (0.05 * A if loss == "linear" else A), X - X.mean(axis=0)
    model = dkl.LogDetMetricLearner(0.5, loss=loss, standardize=False, holdout=0, tol=1e-9).fit(X, constraints=list(A))
    W, folded = model.get_mahalanobis_matrix(), np.einsum("id,tij,je->tde", Z, A, Z)
    least, wanted = optimum(np.eye(3), folded, as_loss(loss), 0.5 / N)
    assert model.certificate_.objective == pytest.approx(least, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(W, wanted, atol=2e-4 * np.abs(wanted).max())


@pytest.mark.parametrize("solver", ["pcg", "direct", "paper"])
def test_every_solver_takes_matrices_of_all_entries(solver, rng):
    X, A = rng.normal(size=(20, 2)), rng.normal(size=(30, 20, 20))
    A += A.transpose(0, 2, 1)
    model = dkl.LogDetKernelLearner(0.5, solver=solver, holdout=0, tol=1e-4 if solver == "paper" else 1e-7).fit(
        X, constraints=A
    )
    K, K0 = model.kernel_matrix(X), model._prior.within(np.arange(20))
    F, before = (objective(one, K0, A, as_loss("log"), 0.5 / 20) for one in (K, K0))
    assert model.certificate_.objective == pytest.approx(F, rel=1e-6) and before > F
    assert model.certificate_.relative_gap <= 1e-5


@pytest.mark.parametrize("loss", TRIPLET_LOSSES)
@pytest.mark.parametrize("learner", LEARNERS)
def test_triplets_are_their_matrices(learner, loss, rng):
    X, triplets = rng.normal(size=(12, 3)), triplets_of(rng, 12, 300)[:200]
    A = matrices(ConstraintSet.triplets(12, triplets))
    a, s, d = triplets[0]
    assert (A[0, a, s], A[0, s, a], A[0, a, d], A[0, s, s], A[0, d, d]) == (1, 1, -1, -1, 1)  # as the docstring says
    gamma = 0.01 if loss == "linear" else 16.0
    one, other = (
        learner(gamma, loss=loss).fit(X, **given) for given in ({"triplets": triplets}, {"constraints": list(A)})
    )
    np.testing.assert_allclose(other.transform(X), one.transform(X), rtol=1e-6, atol=1e-9)
    assert other.certificate_.objective == pytest.approx(one.certificate_.objective, rel=1e-9)
    assert other.result_.quality.value == one.result_.quality.value
    assert other.result_.quality.alternative_value == one.result_.quality.alternative_value
    assert other.result_.quality.n == one.result_.quality.n == 20


@pytest.mark.parametrize("loss", ["hoi", "hoi_hinge"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_pairs_are_their_matrices(learner, loss, rng):
    X = rng.normal(size=(8, 3))
    must, cannot = [[0, 1], [2, 3], [4, 7]], [[1, 2], [5, 6], [0, 4]]
    A = np.zeros((6, 8, 8))
    for t, (i, j) in enumerate(must + cannot):
        A[t, i, j] = A[t, j, i] = 1 if t < 3 else -1
    one = learned(learner, X, loss=loss, must_link=must, cannot_link=cannot)
    other = learned(learner, X, loss=loss, constraints=list(A))
    np.testing.assert_allclose(other.transform(X), one.transform(X), rtol=1e-5, atol=1e-7)
    assert other.certificate_.objective == pytest.approx(one.certificate_.objective, rel=1e-8)


@pytest.mark.parametrize("learner", LEARNERS)
def test_order_and_form_do_not_matter(learner, X, A, rng):
    t, i, j = np.nonzero(A)
    table = np.stack([t, i, j, A[t, i, j]], axis=1)
    order, rows = rng.permutation(C), rng.permutation(N)
    wanted = learned(learner, X, constraints=list(A))
    for given in (A[order], [sp.csr_array(one) for one in A], table, rng.permutation(table)):
        same = learned(learner, X, constraints=given)
        np.testing.assert_allclose(same.transform(X), wanted.transform(X), rtol=1e-5, atol=1e-7)
    moved = learned(learner, X[rows], constraints=list(A[:, rows][:, :, rows]))
    np.testing.assert_allclose(moved.certificate_.objective, wanted.certificate_.objective, rtol=1e-8)
    for again in (copy.deepcopy(wanted), pickle.loads(pickle.dumps(wanted))):
        np.testing.assert_array_equal(again.transform(X), wanted.transform(X))


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_path_and_a_loss_of_one_s_own(learner, X, A):
    path = learner(loss="log", tol=1e-8, standardize=False).path(X, gammas=[0.5, 4.0], constraints=list(A))
    alone = learner(4.0, loss="log", tol=1e-8, standardize=False, holdout=0).fit(X, constraints=list(A))
    np.testing.assert_allclose(path.model(1).transform(X), alone.transform(X), rtol=1e-4, atol=1e-6)

    class Own:
        def value(self, x):
            return np.logaddexp(0, -2 * x)

        def first(self, x):
            return -2 / (1 + np.exp(2 * x))

        def second(self, x):
            return 1 / np.cosh(x) ** 2

    own = learned(learner, X, loss=Own(), constraints=list(A))
    wanted = learned(learner, X, constraints=list(A))
    assert own.certificate_.objective == pytest.approx(wanted.certificate_.objective, rel=1e-7)


def test_the_held_out_number_is_of_positive_margins(rng):
    """Of constraints that K0 meets, all held-out ones hold before; their number is a tenth."""
    X, A = rng.normal(size=(15, 3)), rng.normal(size=(300, 15, 15))
    A += A.transpose(0, 2, 1)
    K0 = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    A *= np.sign(np.einsum("tij,ij->t", A, K0))[:, None, None]
    model = dkl.LogDetKernelLearner(0.01, kernel_params={"gamma": 1.0}, standardize=False).fit(X, constraints=list(A))
    quality = model.result_.quality
    assert (quality.n, quality.alternative_value) == (30, 1.0)
    assert "constraints" in quality.measure and 0 <= quality.value <= 1
    few = dkl.LogDetKernelLearner().fit(X, constraints=list(A[:3]))
    assert few.result_.quality is None and "constraints" in few.result_.no_quality


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_cannot_be_learned_from(learner, X, A):
    model, given = learner(loss="log"), list(A)
    for more in ({"triplets": [[0, 1, 2]]}, {"must_link": [[0, 1]]}, {"pairs": dkl.Pairs([[0, 1]])}):
        with pytest.raises(InputError, match="two kinds of side information.*and constraints"):
            model.fit(X, constraints=given, **more)
    with pytest.warns(DataWarning, match="y is not learned from, since triplets, pairs or constraints"):
        model.fit(X, np.arange(N) % 2, constraints=given)
    with pytest.raises(InputError, match=r'loss="itml" is of pairs or labels; got constraints; wanted .*"hoi_hinge"'):
        learner(loss="itml").fit(X, constraints=given)
    with pytest.raises(InputError, match="another shape"):
        model.fit(X[:-1], constraints=given)
    with pytest.raises(InputError, match="cross-validation.*sample_ids"):
        model.fit(X, constraints=given, sample_ids=np.arange(N))
    with pytest.raises(InputError, match="cannot be followed through cross-validation"):
        cross_val_score(
            model, X, np.arange(N) % 2, params={"constraints": given}, cv=2, error_score="raise", scoring=len
        )
    with pytest.raises(InputError, match="no minimum under a linear loss"):
        learner(1e6, loss="linear").fit(X, constraints=[-np.eye(N), np.eye(N), 2 * np.eye(N)])


@pytest.mark.parametrize("learner", LEARNERS)
def test_matrices_without_room_are_refused_before_they_are_read(learner):
    entries = sp.eye_array(2_000_000, format="csr")
    rows = np.arange(2_000_000.0)[:, None] % 7
    with pytest.raises(MemoryBudgetError, match=r"the constraints' entries.*give fewer constraints"):
        learner(loss="log", memory_limit="800 MB").fit(rows, constraints=[entries] * 5)

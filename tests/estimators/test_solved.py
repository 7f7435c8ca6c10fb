"""An outcome "solved" is backed, for every learner, by a finite gap or residual of what is handed out, at most what was asked for."""

import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import rbf_kernel

import dkl
from dkl.errors import InputError
from dkl.quality import absolute_gap
from dkl.solvers.watch import Outcome, Result


def ended(proven, asked, outcome=Outcome.SOLVED):
    return Result(outcome, 1, [], {}, 0, proven=proven, asked=asked, remedy="own")


@pytest.mark.parametrize(
    ("proven", "asked", "outcome"),
    [
        (1e-7, 1e-6, "solved"),
        (1e-6, 1e-6, "solved"),
        (0.0, 0.0, "solved"),
        (2e-6, 1e-6, "stalled"),
        (np.inf, 1e-6, "numerical_error"),
        (np.nan, 1e-6, "numerical_error"),
        (1e-7, np.nan, "stalled"),
        (np.inf, np.inf, "numerical_error"),
    ],
)
def test_no_result_is_solved_without_a_proof(proven, asked, outcome):
    result = ended(proven, asked)
    assert result.outcome == outcome
    assert result.outcome.converged or f"of what is handed out is {proven:.2g}" in result.message
    assert "\n" not in result.message


def test_other_outcomes_keep_their_remedy():
    result = ended(np.nan, np.nan, Outcome.TIME_LIMIT)
    assert (result.outcome, result.remedy) == (Outcome.TIME_LIMIT, "own")
    assert Result(Outcome.SOLVED, 1, [], {}, 0).outcome is Outcome.NUMERICAL_ERROR


def test_every_learner_says_what_is_proven_and_what_was_asked(rng):
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 4)) + 3 * np.eye(3, 4)[y]
    pairs = {"must_link": [[0, 3], [1, 4]], "cannot_link": [[0, 1], [4, 5]]}
    fits = {
        dkl.PairwiseKernelLearner(gamma=10.0, holdout=0): ((X,), pairs, 1e-2),
        dkl.LowRankKernelRegressor(nu=1.0, holdout=0): ((X, X[:, 0]), {}, 1e-6),
        dkl.OptimalNeighborhoodSVC(holdout=0, dtype="float32"): ((X, y), {}, 1e-6),
        dkl.LogDetKernelLearner(2.0, holdout=0): ((X, y), {}, 1e-6),
        dkl.LogDetMetricLearner(2.0, holdout=0): ((X, y), {}, 1e-6),
        dkl.LaplacianKernelLearner(n_basis=8, holdout=0): ((X,), pairs, 1e-6),
        dkl.MaximumVarianceUnfolding(n_basis=8, holdout=0): ((X,), {}, 1e-6),
        dkl.KernelPCA(2, dtype="float32", holdout=0): ((X,), {}, 1e-6),
        dkl.SpectralEmbedding(2, holdout=0): ((X,), {}, 1e-8),
    }
    for learner, (given, more, asked) in fits.items():
        result = learner.fit(*given, **more).result_
        name = type(learner).__name__
        assert (result.outcome, result.asked) == (Outcome.SOLVED, asked), name
        assert 0 <= result.proven <= asked, name
    result = dkl.KernelKMeans(3, kernel="linear", random_state=0).fit(X).result_
    assert result.outcome.converged and 0 <= result.proven <= result.asked < 1e-2


@pytest.mark.parametrize("exponent", [-300, -160, 153, 300])
def test_kernel_components_are_the_same_at_any_scale(rng, exponent):
    K = rbf_kernel(rng.standard_normal((60, 4)), gamma=0.1)
    plain, scaled = (dkl.KernelPCA(3, kernel="precomputed", random_state=0).fit(K * s) for s in (1.0, 10.0**exponent))
    assert scaled.result_.outcome.converged and scaled.residual_.max() == scaled.result_.proven <= 1e-6
    np.testing.assert_allclose(scaled.eigenvalues_ / 10.0**exponent, plain.eigenvalues_, rtol=1e-12)
    np.testing.assert_allclose(scaled.eigenvectors_, plain.eigenvectors_, atol=1e-9)


@pytest.mark.parametrize("learner", [dkl.KernelPCA(2, kernel="linear"), dkl.KernelKMeans(2, kernel="linear")])
def test_rows_too_small_to_square_are_refused(rng, learner):
    with pytest.raises(InputError, match="too small to square"):
        learner.fit(1e-165 * rng.standard_normal((20, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert learner.fit(np.full((20, 3), 1e-165)) is learner  # rows that are equal are no smaller than others


@pytest.mark.parametrize("learner", [dkl.KernelPCA(2, kernel="linear"), dkl.KernelKMeans(2, kernel="linear")])
def test_rows_whose_differences_rounding_hides_are_not_called_small(rng, learner):
    """Sparse rows far from 0, whose mean is not subtracted: their covariance is what rounding has left, of either sign."""
    refused = 0
    for _ in range(12):
        X = csr_array(rng.standard_normal((30, 3)) + 1e9 * rng.standard_normal(3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                learner.fit(X)
            except InputError as error:
                assert "rounding hides how rows differ: they are too far from 0" in str(error)
                refused += 1
    assert refused or isinstance(learner, dkl.KernelKMeans)


def test_eigenvalues_that_are_not_told_from_rounding_are_not_solved(rng):
    signal = rng.standard_normal((60, 2))
    K = 1e12 + 1e-3 * signal @ signal.T  # which doubles hold, and whose products lose it
    with pytest.warns(dkl.errors.ConvergenceWarning):
        model = dkl.KernelPCA(2, kernel="precomputed", random_state=0).fit(0.5 * (K + K.T))
    assert not model.result_.outcome.converged


def test_what_a_gap_is_relative_to_is_said_where_the_objective_falls_to_zero(rng):
    y = np.arange(50) % 3
    X = rng.standard_normal((50, 5)) + 2 * np.eye(3, 5)[y]
    i, j = rng.permutation(50)[:40].reshape(2, 20)
    alike = y[i] == y[j]
    pairs = np.stack([i, j], axis=1)
    model = dkl.LaplacianKernelLearner(n_basis=49, holdout=0).fit(X, must_link=pairs[alike], cannot_link=pairs[~alike])
    proven, f0 = model.certificate_, 50 + int(alike.sum())  # f of Y = 0: a square of 1 a must-link and a row
    assert proven.size == pytest.approx(1e-3 * f0, rel=1e-12)
    assert model.result_.outcome.converged and proven.objective <= proven.gap * (1 + 1e-9) <= 1e-6 * proven.size
    assert model.result_.proven == pytest.approx(proven.gap / proven.size, rel=1e-3)
    assert absolute_gap(proven.objective, proven.gap, proven.relative_gap) == proven.gap
    title = model.plot().get_suptitle()
    assert f"within {proven.gap:.2g} of its minimum" in title and "%" not in title

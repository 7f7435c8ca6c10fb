"""The logistic curve with a floor against brute force and scipy, and what it finds where the truth is known."""

import numpy as np
import pytest
from scipy.optimize import differential_evolution

from dkl.solvers.pairwise.gamma_path import FLOORS, RIDGE, NoisyLogistic


def drawn(rng, m, slope, intercept, floor):
    scores = rng.standard_normal(m) * 0.4 + 0.5
    true = rng.random(m) < 1 / (1 + np.exp(-slope * scores - intercept))
    wrong = rng.random(m) < floor
    return scores, true ^ wrong, wrong


def objective(x, scores, labels, weights):
    """Negative, of the standardized scores, in the words of the file's head."""
    mean = np.average(scores, weights=weights)
    spread = np.sqrt(np.average((scores - mean) ** 2, weights=weights))
    q = 1 / (1 + np.exp(-x[0] * (scores - mean) / spread - x[1]))
    p = x[2] + (1 - 2 * x[2]) * q
    return -np.sum(weights * np.log(np.where(labels, p, 1 - p))) + RIDGE * weights.sum() * x[0] ** 2


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.3])
def test_the_maximum_is_that_of_a_global_search(rng, floor):
    scores, labels, _ = drawn(rng, 300, 9.0, -4.0, floor)
    weights = rng.uniform(0.2, 2.0, 300)
    found = NoisyLogistic.fit(scores, labels, weights)
    best = differential_evolution(
        objective, [(0, 60), (-30, 30), FLOORS], args=(scores, labels, weights), seed=0, tol=1e-10, maxiter=300
    )
    mean = np.average(scores, weights=weights)
    spread = np.sqrt(np.average((scores - mean) ** 2, weights=weights))
    mine = (found.slope * spread, found.intercept + found.slope * mean, found.floor)
    assert objective(mine, scores, labels, weights) <= best.fun + 1e-3
    p = found.probability(scores)
    assert found.log_likelihood == pytest.approx(np.sum(weights * np.log(np.where(labels, p, 1 - p))), rel=1e-12)


def test_the_floor_is_the_share_of_wrong_labels_and_these_have_the_high_probabilities(rng):
    scores, labels, wrong = drawn(rng, 4000, 20.0, -10.0, 0.15)
    found = NoisyLogistic.fit(scores, labels, np.ones(4000))
    assert found.floor == pytest.approx(0.15, abs=0.02)
    probability = found.wrong(scores, labels)
    assert probability.sum() == pytest.approx(wrong.sum(), rel=0.1)  # it is calibrated
    flagged = probability > 0.5
    assert wrong[flagged].mean() > 0.8 and wrong[~flagged].mean() < 0.08
    right, other, _ = drawn(rng, 4000, 20.0, -10.0, 0.0)
    assert NoisyLogistic.fit(right, other, np.ones(4000)).floor < 0.01


def test_a_weight_of_2_is_the_label_twice_and_units_of_scores_do_not_matter(rng):
    scores, labels, _ = drawn(rng, 200, 6.0, -3.0, 0.1)
    weights = 1.0 + (np.arange(200) % 3 == 0)
    twice = np.repeat(np.arange(200), weights.astype(int))
    one, other = (
        NoisyLogistic.fit(scores, labels, weights),
        NoisyLogistic.fit(scores[twice], labels[twice], np.ones(len(twice))),
    )
    assert one.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-6)
    scaled = NoisyLogistic.fit(1e6 * scores - 3e5, labels, weights)
    assert scaled.wrong(1e6 * scores - 3e5, labels) == pytest.approx(one.wrong(scores, labels), abs=1e-3)


def test_scores_that_separate_or_say_nothing_leave_finite_numbers():
    labels = np.arange(20) < 10
    apart = NoisyLogistic.fit(labels.astype(float), labels, np.ones(20))
    assert (
        np.isfinite([apart.slope, apart.intercept]).all() and (apart.wrong(labels.astype(float), labels) < 0.01).all()
    )
    flat = NoisyLogistic.fit(np.zeros(20), labels, np.ones(20))
    assert flat.log_likelihood == pytest.approx(20 * np.log(0.5), rel=1e-6)
    against = NoisyLogistic.fit(-labels.astype(float), labels, np.ones(20))
    assert against.slope == pytest.approx(0.0, abs=1e-6)  # high scores never speak against a must-link

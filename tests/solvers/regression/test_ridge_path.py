"""A ridge's lambda along its path, on folds whose errors are known functions of it."""

from dataclasses import dataclass

import numpy as np
import pytest

from dkl.solvers.regression.lasso_path import RATIO, ROUNDING, WAITING, lam_path, validate_ridge
from dkl.solvers.watch import Outcome, Watch


@dataclass
class Fold:
    """Two outputs that are best predicted at the lambdas `best`; no solution below `end`."""

    best: tuple[float, float]
    end: float = 0.0

    def error(self, lam):
        return None if lam < self.end else 1 + np.log(lam / np.array(self.best)) ** 2


LAMS, ONES = lam_path(1000.0), np.ones(2)


def test_the_path_goes_from_all_rows_to_their_rounding_in_half_decades():
    assert LAMS[0] == 1000.0 and 1000 * np.finfo(float).eps <= LAMS[-1] < 1000 * np.finfo(float).eps / RATIO
    np.testing.assert_allclose(LAMS[1:] / LAMS[:-1], RATIO, rtol=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_least_mean_error_is_taken_and_two_decades_are_waited(threads):
    seen = []
    folds = [Fold((1.0, 1.0)), Fold((100.0, 100.0))]
    found = validate_ridge(folds, LAMS, ONES, threads=threads, watch=Watch([seen.append]))
    assert found.lam == pytest.approx(10.0) and len(found.lams) == found.best + WAITING + 1
    np.testing.assert_array_equal(found.errors, [[fold.error(lam) for fold in folds] for lam in found.lams])
    assert [row["lam"] for row in seen] == found.lams.tolist()
    np.testing.assert_allclose([row["error"] for row in seen], found.errors.mean(axis=(1, 2)))


def test_outputs_are_weighed_by_their_variances():
    folds = [Fold((1.0, 100.0))]
    assert validate_ridge(folds, LAMS, np.array([1.0, 1e6])).lam == pytest.approx(1.0)
    assert validate_ridge(folds, LAMS, np.array([1e6, 1.0])).lam == pytest.approx(100.0)


def test_it_ends_where_a_fold_has_no_solution():
    found = validate_ridge([Fold((1e-9, 1e-9)), Fold((1e-9, 1e-9), end=0.5)], LAMS, ONES)
    assert found.best == len(found.lams) - 1 and 0.5 <= found.lam < 0.5 / RATIO
    assert validate_ridge([Fold((1.0, 1.0), end=1e4)], LAMS, ONES) is None


def test_who_ends_the_run_gets_no_refit():
    watch = Watch([lambda row: row["iteration"] == 3])
    assert validate_ridge([Fold((1.0, 1.0))], LAMS, ONES, watch=watch) is None
    assert watch.outcome is Outcome.STOPPED and len(watch.history) == 3


class Noiseless:
    """The less lambda the better, down to rounding, which is not to choose."""

    def error(self, lam):
        return np.full(2, (lam / 1000) ** 2 + 1e-15 * (1 - lam / 1000))


def test_rounding_chooses_nothing():
    found = validate_ridge([Noiseless()], LAMS, ONES)
    # Where it ends, what the next lambda gains is no more than rounding; where it was before, it was more.
    least, most = ROUNDING, ROUNDING / (1 - RATIO**2)
    assert least * RATIO**2 < found.errors[found.best].mean() < most and len(found.lams) == found.best + WAITING + 1

"""The memory plan of a LogDet fit: what labels promise before rows are read holds for the triplets that they make."""

import numpy as np
import pytest

from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.plan import sizes_of, sizes_of_labels
from dkl.side_information.triplets import Triplets


@pytest.mark.parametrize(("classes", "n_in", "n_out"), [(2, 10, 10), (5, 3, 7), (17, 10, 10)])
def test_triplets_of_labels_are_no_larger_than_the_labels_promise(rng, classes, n_in, n_out):
    codes = np.arange(120) % classes
    made = Triplets.from_labels(rng.standard_normal((120, 3)), codes, n_in, n_out)
    side = SideInformation(120, made, made.to_pairs().check(120), 120, codes)
    promised = sizes_of_labels(codes, n_in, n_out, "rbf", "log", 3)
    found = sizes_of(side, "rbf", "log", 3)
    assert (found.p, found.c) == (promised.p, promised.c)
    assert found.q <= promised.q


def test_a_pair_that_two_triplets_compare_counts_once():
    side = SideInformation(4, Triplets(np.array([[0, 1, 2], [1, 0, 2], [0, 1, 3]])))
    assert sizes_of(side, "rbf", "log", 3).q == 4 + len({(0, 1), (0, 2), (1, 2), (0, 3)})

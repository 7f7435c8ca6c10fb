"""Predictions of a block: the bits do not depend on how the weights lie in memory."""

import numpy as np
import pytest

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.problems.column_predict import predict_block


def misaligned(values):
    """The same numbers, a byte off, as what came over a network may be."""
    found = np.empty(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


@pytest.mark.parametrize(("n", "m", "T"), [(40, 155, 6), (200, 30, 3), (7, 90, 45), (300, 60, 1)])
def test_weights_in_any_order_give_the_same_bits(n, m, T, rng):
    rows, points = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
    weights, intercepts = rng.standard_normal((T, m)), rng.standard_normal(T)
    forms = {
        "rows": weights,
        "columns": np.asfortranarray(weights),
        "every other": np.repeat(weights, 2, axis=1)[:, ::2],
        "misaligned": misaligned(weights),
    }
    assert not forms["misaligned"].flags.aligned

    def predicted(given):
        blocks = RowBlocks(rows, Session(None, threads=1))
        return np.concatenate(blocks.map(predict_block, Kernel("rbf", 0.3), points, given, intercepts))

    wanted = predicted(weights)
    for name, form in forms.items():
        np.testing.assert_array_equal(predicted(form), wanted, err_msg=name)
    np.testing.assert_allclose(wanted, Kernel("rbf", 0.3).columns(rows, points) @ weights.T + intercepts, rtol=1e-9)

"""Few rows pass without scikit-learn's checks where these would return them unchanged: all else is checked by them as before."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from dkl import KernelPCA
from dkl.errors import InputError
from dkl.estimators.base import validation

ROW = np.array([[1.0, -2.0, 3.0]])
FORMS = {
    "double": ROW,
    "single": ROW.astype(np.float32),
    "by columns": np.asfortranarray(np.vstack([ROW, ROW])),
    "strided": np.vstack([ROW, ROW, ROW])[::2],
    "read-only": np.frombuffer(ROW.tobytes()).reshape(1, 3),
    "big-endian": ROW.astype(">f8"),
    "half": ROW.astype(np.float16),
    "integers": ROW.astype(int),
    "booleans": ROW > 0,
    "complex": ROW + 1j,
    "objects": ROW.astype(object),
    "text": ROW.astype(str),
    "masked": np.ma.MaskedArray(ROW, [[False, True, False]]),
    "a list": ROW.tolist(),
    "a frame": pd.DataFrame(ROW, columns=["a", "b", "c"]),
    "a NaN": np.array([[1.0, np.nan, 3.0]]),
    "an infinity": np.array([[1.0, 2.0, -np.inf]]),
    "large": np.array([[1e308, 1e308, 1e308]]),
    "a feature less": ROW[:, :2],
    "no features": ROW[:, :0],
    "no rows": ROW[:0],
    "one dimension": ROW[0],
    "three dimensions": ROW[None],
}


def outcome(model, X):
    """Return the rows and their type, or the error; and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            rows = validation.given_rows(model, X, reset=False)
            found = (type(rows), rows.dtype, rows.strides, rows.tolist(), rows is X)
        except InputError as error:
            found = (type(error), str(error))
    return repr(found), [str(one.message) for one in caught]


@pytest.mark.parametrize("assume_finite", [False, True])
@pytest.mark.parametrize("columns", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_and_errors_are_those_of_all_checks(form, columns, assume_finite, monkeypatch, rng):
    learned = rng.standard_normal((20, 3))
    model = KernelPCA(1).fit(learned if columns is None else pd.DataFrame(learned, columns=columns))
    with config_context(assume_finite=assume_finite):
        found = outcome(model, FORMS[form])
        monkeypatch.setattr(validation, "FEW_BYTES", 0)
        assert found == outcome(model, FORMS[form])


def test_more_than_a_few_rows_are_left_to_scikit_learn(monkeypatch, rng):
    model, asked = KernelPCA(1).fit(rng.standard_normal((20, 3))), []
    every = validation.validate_data
    monkeypatch.setattr(validation, "validate_data", lambda *given, **how: asked.append(1) or every(*given, **how))
    validation.given_rows(model, rng.standard_normal((4, 3)), reset=False)
    assert not asked
    validation.given_rows(model, rng.standard_normal((validation.FEW_BYTES // 24 + 1, 3)), reset=False)
    assert asked

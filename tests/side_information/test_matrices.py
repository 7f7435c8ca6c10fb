"""Constraint matrices: every form of the same ones, and what is refused at the door."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from dkl.errors import InputError
from dkl.side_information.matrices import ENTRY_BYTES, ConstraintMatrices, count_entries

N = 5


@pytest.fixture
def matrices(rng):
    """Three symmetric matrices (5, 5) with gaps."""
    A = rng.normal(size=(3, N, N)) * (rng.random((3, N, N)) < 0.4)
    A = A + A.transpose(0, 2, 1)
    A[:, 2, 2] = 1.0
    return A


def table_of(A):
    """All entries of the matrices other than 0, in an order of their own."""
    t, i, j = np.nonzero(A)
    return np.stack([t, i, j, A[t, i, j]], axis=1)[np.random.default_rng(0).permutation(len(t))]


def dense(found):
    """The matrices (c, n, n) of the checked upper halves."""
    A = np.zeros((found.count, found.n, found.n))
    A[found.constraint, found.i, found.j] = found.value
    A[found.constraint, found.j, found.i] = found.value
    return A


FORMS = {
    "dense": list,
    "tuple": tuple,
    "stacked": np.asarray,
    "lists": lambda A: [one.tolist() for one in A],
    "csr": lambda A: [sp.csr_array(one) for one in A],
    "coo matrices": lambda A: [sp.coo_matrix(one) for one in A],
    "mixed": lambda A: [A[0], *map(sp.csc_matrix, A[1:])],
    "table": table_of,
    "rows of a table": lambda A: table_of(A).tolist(),
    "data frame": lambda A: pd.DataFrame(table_of(A), columns=["constraint", "i", "j", "value"]).astype({"i": int}),
    "parts that add up": lambda A: np.concatenate([table_of(0.25 * A), table_of(0.75 * A)]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_matrices(form, matrices):
    given = FORMS[form](matrices)
    found = ConstraintMatrices.checked(N, given)
    np.testing.assert_allclose(dense(found), matrices, rtol=1e-15)
    assert (found.i <= found.j).all() and (np.diff(found.constraint) >= 0).all() and (found.value != 0).all()
    touched = np.flatnonzero(np.any(matrices, axis=(0, 2)))
    assert found.points.tolist() == touched.tolist()
    assert found.n_entries == np.count_nonzero(np.triu(np.any(matrices, axis=0)))
    assert found.widest == max(np.count_nonzero(np.triu(one)) for one in matrices)
    if form != "lists":  # such are small
        assert count_entries(given) == np.count_nonzero(matrices) * (2 if form == "parts that add up" else 1)


def test_halves_may_differ_by_rounding_alone(matrices):
    off = matrices.copy()
    off[1, 0, 4] = off[1, 4, 0] = 1.0
    off[1, 0, 4] += 1e-15
    assert dense(ConstraintMatrices.checked(N, list(off)))[1, 4, 0] == pytest.approx(1.0, rel=1e-14)
    off[1, 0, 4] += 1e-9
    with pytest.raises(InputError, match=r"constraints\[1\]: not symmetric.*A\[0, 4\].*A\[4, 0\].*\(A \+ A.T\) / 2"):
        ConstraintMatrices.checked(N, list(off))


A = np.eye(N)
REFUSED = {
    "none": ([], "no constraints"),
    "none in a table": (np.empty((0, 4)), "no constraints"),
    "one matrix": (sp.csr_array(A), r"not a list of matrices.*\(5, 5\).*give \[A\]"),
    "one dense matrix": (A, r"not constraints.*shape \(5, 5\)"),
    "a vector": (np.ones(4), r"constraints\[0\]: not a matrix"),
    "a number": (3.0, "not constraints.*float"),
    "a mapping": ({0: A}, "not constraints.*dict"),
    "an upper half": ([np.triu(np.ones((N, N)))], r"constraints\[0\]: not symmetric.*A\[0, 1\] = 1, A\[1, 0\] = 0"),
    "half a table": ([[0, 1, 2, 1.0]], r"not symmetric.*give each entry off the diagonal twice"),
    "another shape": ([A, np.eye(4)], r"constraints\[1\]: a matrix of another shape; got \(4, 4\); wanted \(5, 5\)"),
    "not square": ([np.ones((N, 2))], r"another shape.*\(5, 2\)"),
    "NaN": ([A, sp.csr_array(A * np.nan)], r"constraints\[1\]: not finite; got nan"),
    "infinite": ([[0, 1, 1, np.inf]], "not finite.*inf"),
    "zeros": ([A, sp.csr_array((N, N))], r"constraints\[1\]: a matrix of zeros"),
    "entries that cancel": ([[0, 1, 1, 2.0], [1, 1, 1, 3.0], [1, 1, 1, -3.0]], r"constraints\[1\]: a matrix of zeros"),
    "a gap in the table": ([[0, 1, 1, 2.0], [2, 1, 1, 3.0]], r"constraints\[1\]: a matrix of zeros"),
    "a far number": ([[0, 1, 1, 2.0], [1e15, 1, 1, 3.0]], r"constraints\[1\]: a matrix of zeros"),
    "complex": ([A * 1j], "not real numbers.*complex"),
    "text": ([["0", "1", "1", "2"]], "text|numbers"),
    "three columns": ([[0, 1, 1]], r"not constraints.*shape \(1, 3\)"),
    "ragged": ([[0, 1, 1, 2.0], [0, 1, 1]], "not constraints.*list"),
    "half a row": ([[0, 1.5, 1, 2.0]], r"row 0, i: not a row number; got 1.5; wanted row numbers from 0 to 4"),
    "no such row": ([[0, 1, 5, 2.0]], r"row 0, j: not a row number; got 5; wanted row numbers from 0 to 4"),
    "a negative constraint": ([[-1, 1, 1, 2.0]], "row 0, constraint: not a number of a constraint; got -1"),
    "masked": ([np.ma.masked_equal(A, 0)], "masked"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_are_no_constraints(form):
    given, message = REFUSED[form]
    with pytest.raises(InputError, match=message):
        ConstraintMatrices.checked(N, given)


@pytest.mark.parametrize("is_table", [False, True], ids=["matrices", "table"])
def test_the_bytes_that_are_planned_for_an_entry_hold(is_table, rng):
    A = rng.normal(size=(5, 100, 100))
    A += A.transpose(0, 2, 1)
    given = table_of(A) if is_table else [sp.csr_array(one) for one in A]
    tracemalloc.start()
    ConstraintMatrices.checked(100, given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < ENTRY_BYTES * count_entries(given)

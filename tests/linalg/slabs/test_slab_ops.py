"""What is computed on a slab, against dense numpy: small integers, of which every sum is exact, must agree to the bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

from dkl.linalg.late_functions import njit
from dkl.linalg.slabs import slab_ops as kernels
from dkl.linalg.slabs.slab_ops import (
    CACHE_LINE,
    combine_rows,
    empty_aligned,
    gather_rows,
    lanes_of,
    n_slabs,
    random_columns,
    slab_width,
)

WIDTHS = [(4, np.float64), (16, np.float64), (8, np.float32), (32, np.float32)]
WIDTHS += [(24, np.float64), (28, np.float64), (24, np.float32), (7, np.float32)]  # rows of two or three pieces
every_width = pytest.mark.parametrize(("width", "dtype"), WIDTHS)


def integers(rng, shape, dtype):
    out = empty_aligned(shape, dtype)
    out[...] = rng.integers(-4, 5, shape)
    return out


def random_csr(rng, n, dtype=np.float64, density=0.2):
    """A matrix of small integers with some empty rows, (n, n)."""
    dense = rng.integers(-3, 4, (n, n)) * (rng.random((n, n)) < density)
    dense[:: max(2, n // 3)] = 0
    return sparse.csr_array(dense.astype(dtype))


def csr(matrix):
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data


# -- products and dot products ----------------------------------------------------------------------------------------


@every_width
@pytest.mark.parametrize("n", [1, 2, 37])
def test_products_are_added_to_what_is_there(rng, n, width, dtype):
    m, x, out = random_csr(rng, n, dtype), integers(rng, (n, width), dtype), integers(rng, (n, width), dtype)
    expected = out + m.toarray() @ x
    kernels.sparse_product(*csr(m), x, out, lanes_of(width))
    assert out.dtype == dtype and np.array_equal(out, expected)


@every_width
def test_dot_products_of_listed_rows(rng, width, dtype):
    n, lanes = 37, lanes_of(width)
    x, y = integers(rng, (n, width), dtype), integers(rng, (n, width), dtype)
    left, right = (rng.integers(0, n, 200).astype(np.int32) for _ in range(2))
    total = np.arange(200.0)
    kernels.pair_dots(left, right, x, y, total, lanes)
    assert np.array_equal(total, np.arange(200.0) + np.sum(x[left].astype(float) * y[right], axis=1))


@every_width
def test_a_product_and_dot_products_with_it_in_one_pass(rng, width, dtype):
    n = 37
    m, t = random_csr(rng, n, dtype), random_csr(rng, n, density=0.1)
    x, y, out = integers(rng, (n, width), dtype), integers(rng, (n, width), dtype), np.full((n, width), np.nan, dtype)
    rows, columns = t.nonzero()
    product = m.toarray() @ x - 2 * y
    total = np.ones(t.nnz)
    size = kernels.product_and_edge_dots(*csr(m), *csr(t)[:2], x, dtype(-2), y, out, total, lanes_of(width))
    assert size == np.sum(product.astype(float) ** 2)
    assert np.array_equal(out, product)
    assert np.array_equal(total, 1.0 + np.sum(x.astype(float)[columns] * product[rows], axis=1))


def test_rounding_is_that_of_sums_in_the_slab_s_precision(rng):
    """|error| <= terms * eps * sum of magnitudes, the bound of any order of summation."""
    n = 60
    for width, dtype in WIDTHS:
        m = sparse.csr_array((rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.3)).astype(dtype))
        x, out = empty_aligned((n, width), dtype), np.zeros((n, width), dtype)
        x[...] = rng.standard_normal((n, width))
        kernels.sparse_product(*csr(m), x, out, lanes_of(width))
        exact = m.toarray().astype(np.longdouble) @ x
        bound = n * np.finfo(dtype).eps * (abs(m.toarray()) @ abs(x))
        assert (abs(out - exact) <= bound).all()
        dots = np.zeros(n)
        every = np.arange(n, dtype=np.int32)
        kernels.pair_dots(every, every[::-1].copy(), x, x, dots, lanes_of(width))
        exact = np.sum(x.astype(np.longdouble) * x[::-1], axis=1)
        assert (abs(dots - exact) <= width * np.finfo(dtype).eps * np.sum(abs(x * x[::-1]), axis=1)).all()


def test_sums_over_slabs_are_kept_in_double_whatever_the_slabs_are():
    x = np.full((1, 8), 0.25, np.float32)
    zero, total = np.zeros(1, np.int32), np.array([2.0**30])
    kernels.pair_dots(zero, zero, x, x, total, lanes_of(8))
    assert total[0] == 2.0**30 + 0.5


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint32])
def test_indices_of_any_integer_type(rng, kind):
    m, x, out = random_csr(rng, 20), integers(rng, (20, 4), float), np.zeros((20, 4))
    kernels.sparse_product(m.indptr.astype(np.int64), m.indices.astype(kind), m.data, x, out, lanes_of(4))
    assert np.array_equal(out, m.toarray() @ x)


def test_slabs_need_not_start_on_a_cache_line(rng):
    n, width = 20, 16
    m = random_csr(rng, n)
    x, out = (np.zeros(n * width + 1)[1:].reshape(n, width) for _ in range(2))
    x[...] = integers(rng, (n, width), float)
    kernels.sparse_product(*csr(m), x, out, lanes_of(width))
    assert np.array_equal(out, m.toarray() @ x)


def test_nothing_to_do():
    lanes, nothing = lanes_of(4), np.empty(0, np.int32)
    x, out, total = np.ones((3, 4)), np.ones((3, 4)), np.empty(0)
    start = np.zeros(4, np.int64)
    assert kernels.product_and_edge_dots(start, nothing, total, start, nothing, x, 1.0, x, out, total, lanes) == 12.0
    kernels.pair_dots(nothing, nothing, x, x, total, lanes)
    kernels.sparse_product(start[:1], nothing, total, x[:0], out[:0], lanes)  # no rows at all
    assert np.array_equal(out, np.ones((3, 4)))
    assert kernels.dot_rows(0, 0, x, x, lanes) == 0.0


@every_width
def test_combinations_of_rows_of_either_precision(rng, width, dtype):
    n, lanes = 37, lanes_of(width)
    x, y, other = integers(rng, (n, width), dtype), integers(rng, (n, width), dtype), integers(rng, (n, width), float)

    @njit()
    def combined(x, y, other, out, here, back, lanes):  # type: ignore[no-untyped-def]
        for i in range(len(x)):
            combine_rows((2.0, -3, 0.5), (x, y, other), (i, 0, i), here, i, lanes)
            combine_rows((1.0, x.dtype.type(-4)), (out, y), (i, i), out, i, lanes)
            combine_rows((0.25,), (y,), (i,), back, i, lanes)

    out, here, back = x.copy(), np.full((n, width), np.nan, dtype), np.full((n, width), np.nan)
    combined(x, y, other, out, here, back, lanes)
    assert np.array_equal(here, 2 * x - 3 * y[0] + 0.5 * other)
    assert np.array_equal(out, x - 4 * y)
    assert np.array_equal(back, 0.25 * y.astype(float))


def test_a_combination_of_double_precision_is_rounded_once():
    """1e-40 has no place in single precision; 1e20 times it does."""
    out, lanes = np.full((1, 4), np.nan, np.float32), lanes_of(4)
    gather_rows(0, 1, np.zeros(1, np.int64), np.full((1, 4), 1e-40), 1e20, out, lanes)
    assert np.array_equal(out, np.full((1, 4), 1e-20, np.float32))


# -- the updates of ADMM ----------------------------------------------------------------------------------------------


@every_width
def test_the_proximal_update_and_how_far_it_moved(rng, width, dtype):
    n, rho = 37, dtype(4.0)  # a power of two: the division is exact
    t = random_csr(rng, n, dtype)
    other, linear, mine = (integers(rng, (n, width), dtype) for _ in range(3))
    expected = (linear + rho * other + t.toarray() @ other) / rho
    old = mine.copy()
    moved, size = kernels.proximal_update(*csr(t)[:2], t.data, rho, other, linear, mine, lanes_of(width))
    assert np.array_equal(mine, expected)
    assert moved == np.sum((expected - old).astype(float) ** 2)
    assert size == np.sum(expected.astype(float) ** 2)


@every_width
def test_the_multiplier_s_update_and_its_sums(rng, width, dtype):
    v, u, multiplier = (integers(rng, (37, width), dtype) for _ in range(3))
    expected = multiplier + 8 * (v - u)
    sums = kernels.multiplier_update(dtype(8.0), v, u, multiplier, lanes_of(width))
    assert np.array_equal(multiplier, expected)
    assert sums == tuple(
        np.sum(a.astype(float) * b) for a, b in ((v - u, v - u), (expected, expected), (u, u), (u, expected))
    )
    assert kernels.dot_rows(0, 37, v, u, lanes_of(width)) == np.sum(v.astype(float) * u)


# -- rows [lo, hi) ----------------------------------------------------------------------------------------------------


def test_kernels_on_rows_keep_to_their_rows(rng):
    n, width, lo, hi = 37, 8, 11, 29
    lanes, inside = lanes_of(width), slice(lo, hi)
    m, x = random_csr(rng, n), integers(rng, (n, width), float)

    out = np.full((n, width), 7.0)
    kernels.product_rows(lo, hi, *csr(m), x, out, lanes)
    expected = np.full((n, width), 7.0)
    expected[inside] = (m.toarray() @ x)[inside]
    assert np.array_equal(out, expected)

    gram = np.full(m.nnz, 7.0)
    kernels.gram_rows(lo, hi, *csr(m)[:2], x, gram, lanes)
    rows, columns = m.nonzero()
    assert np.array_equal(gram, np.where((rows >= lo) & (rows < hi), (x @ x.T)[rows, columns], 7.0))

    y, g = integers(rng, (n, width), float), integers(rng, (n, width), float)
    assert kernels.dot_rows(lo, hi, x, y, lanes) == np.sum((x * y)[inside])
    moved = y.copy()
    moved[inside] += 3 * x[inside]
    assert kernels.move_rows(lo, hi, 3.0, x, y, lanes) == np.sum(moved[inside] ** 2)
    assert np.array_equal(y, moved)
    turned = y.copy()
    turned[inside] = 2 * y[inside] - x[inside]
    told = [float(np.sum((one * other)[inside])) for one, other in ((x, g), (x, turned), (y, g))]
    assert kernels.slope_rows(lo, hi, x, g, turned, y, lanes) == tuple(told)
    kernels.update_direction_rows(lo, hi, 2.0, x, y, lanes)
    assert np.array_equal(y, turned)
    assert kernels.dot_rows(lo, lo, x, y, lanes) == 0.0


# -- the same bits ----------------------------------------------------------------------------------------------------


def test_a_column_s_product_does_not_depend_on_the_slab_it_is_in(rng):
    n = 60
    m = sparse.csr_array(rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.4))
    factor = rng.standard_normal((n, 48))
    results = []
    for width in (4, 8, 12, 16, 24, 48):
        out = np.zeros((n, 48))
        for lo in range(0, 48, width):
            x, part = np.ascontiguousarray(factor[:, lo : lo + width]), np.zeros((n, width))
            kernels.sparse_product(*csr(m), x, part, lanes_of(width))
            out[:, lo : lo + width] = part
        results.append(out.tobytes())
    assert len(set(results)) == 1


def test_threads_and_repetition_change_no_bit(rng):
    n, width, slabs = 400, 16, 6
    m = sparse.csr_array(rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.1))
    t = sparse.csr_array((rng.random((n, n)) < 0.05).astype(float))
    factor = rng.standard_normal((slabs, n, width))

    def visit(slab):
        out, total = np.empty((n, width)), np.zeros(t.nnz)
        kernels.product_and_edge_dots(*csr(m), *csr(t)[:2], factor[slab], 0.5, factor[0], out, total, lanes_of(width))
        weights = np.linspace(-1, 1, t.nnz)
        mine = np.ones((n, width))
        sums = kernels.proximal_update(*csr(t)[:2], weights, 3.0, factor[slab], out, mine, lanes_of(width))
        return mine.tobytes(), total.tobytes(), sums

    expected = [visit(slab) for slab in range(slabs)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(visit, range(slabs))) == expected


# -- slabs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_slabs_are_vectors_and_waste_less_than_half_beyond_the_smallest(dtype):
    widest = 2 * CACHE_LINE // np.dtype(dtype).itemsize
    for rank in range(1, 200):
        width = slab_width(rank, dtype)
        slabs = n_slabs(rank, width)
        assert width in (4, 8, 16, 32) and width <= widest
        assert (slabs - 1) * width < rank <= slabs * width
        assert slabs == 1 or width == widest, "wide factors are cut into the widest slabs"
        assert width == 4 or slabs * width < 2 * rank


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (3, 37, 16), (5, 7)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_aligned_arrays_start_on_a_cache_line(shape, dtype):
    for _ in range(20):
        out = empty_aligned(shape, dtype)
        assert out.shape == shape and out.dtype == dtype and out.flags.c_contiguous and out.flags.writeable
        assert out.size == 0 or out.ctypes.data % CACHE_LINE == 0


@pytest.mark.parametrize("width", [4, 16])
def test_a_column_s_deviates_do_not_depend_on_its_slab(width):
    rank, n = 21, 500
    factor = np.empty((n, 0))
    for slab in range(n_slabs(rank, width)):
        out = np.full((n, width), np.nan)
        columns = range(slab * width, min((slab + 1) * width, rank))
        random_columns(3, columns, n, 0.5, out)
        assert not out[:, len(columns) :].any(), "columns beyond the rank are zero"
        factor = np.hstack([factor, out[:, : len(columns)]])
    alone = np.empty((n, rank))
    for column in range(rank):
        random_columns(3, range(column, column + 1), n, 0.5, alone[:, column : column + 1])
    assert factor.tobytes() == alone.tobytes()


def test_columns_are_independent_normal_deviates_of_the_seed_and_scale():
    n, rank = 20_000, 16
    first, other, scaled = (np.empty((n, rank)) for _ in range(3))
    random_columns(1, range(rank), n, 1.0, first)
    random_columns(2, range(rank), n, 1.0, other)
    random_columns(1, range(rank), n, 0.25, scaled)
    assert np.array_equal(scaled, 0.25 * first)
    both = np.hstack([first, other])
    deviation = 5 / np.sqrt(n)  # five standard deviations of a mean or a correlation
    assert (abs(both.mean(axis=0)) < deviation).all()
    assert (abs(both.T @ both / n - np.eye(2 * rank)) < deviation * np.where(np.eye(2 * rank), 2**0.5, 1)).all()
    assert abs(np.mean(abs(first) < 1) - 0.682689) < 5 * 0.4655 / np.sqrt(first.size)


def test_single_precision_columns_are_the_double_ones_rounded():
    double, single = np.empty((50, 8)), np.empty((50, 8), np.float32)
    random_columns(5, range(8, 14), 50, 0.3, double)
    random_columns(5, range(8, 14), 50, 0.3, single)
    assert np.array_equal(single, double.astype(np.float32))

"""Functions that import Numba at their first call: what they cost, how they are pickled, what threads see."""

import inspect
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from distributed.protocol import pickle as pickle_for_workers
from numba.core.dispatcher import Dispatcher

from dkl.linalg import lasso
from dkl.linalg.late_functions import LateFunction, njit
from dkl.linalg.slabs import slab_ops


@njit()
def doubled(x):
    """Return 2 x."""
    return 2 * x


@njit()
def quadrupled(x):
    return doubled(doubled(x))


@njit(inline="always")
def inlined(x, by=3):
    return by * x


@njit()
def sum_of_inlined(x):
    return sum([inlined(one) for one in x])


def calls_of_python(function, *arguments):
    """Return the names of the functions of Python that a call runs."""
    seen = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        function(*arguments)
    finally:
        sys.setprofile(None)
    return seen


def test_compiled_functions_call_each_other():
    assert quadrupled(3) == 12 and quadrupled(0.25) == 1.0
    assert sum_of_inlined(np.arange(4.0)) == 18.0
    assert inlined(2, by=5) == 10


def test_later_calls_take_no_frame_of_python():
    rows, out = np.ones((2, 3)), np.zeros(3)
    given = (out, rows, np.zeros(1, np.intp), np.ones(1))
    lasso.subtract_rows(*given)
    compiled = lasso.subtract_rows.resolve()
    assert isinstance(compiled, Dispatcher)
    assert calls_of_python(lasso.subtract_rows, *given) == calls_of_python(compiled, *given)


@pytest.mark.parametrize("pickler", [pickle, pickle_for_workers])
@pytest.mark.parametrize("function", [doubled, lasso.submatrix, slab_ops.row_dot])
def test_they_are_pickled_by_name(function, pickler):
    """Pickle them before their first call and after it, as plain functions are."""
    assert pickle.loads(pickler.dumps(function)) is function
    function.resolve()
    assert len(pickler.dumps(function)) < 100 and pickle.loads(pickler.dumps(function)) is function


def test_they_look_like_the_function():
    assert (doubled.__name__, doubled.__doc__, doubled.__module__) == ("doubled", "Return 2 x.", __name__)
    assert list(inspect.signature(doubled).parameters) == ["x"]


def test_threads_that_call_it_first_get_one_function():
    """Or each would compile its own, for seconds."""
    count, barrier = 4, threading.Barrier(4)

    def make():
        barrier.wait()  # all have found it missing
        made = object()
        return lambda: made

    late = LateFunction(make, __name__, "late")
    with ThreadPoolExecutor(count) as pool:
        assert len({id(one) for one in pool.map(lambda _: late(), range(count))}) == 1
    assert late() is late.resolve()()


def test_what_fails_as_it_is_made_is_made_at_the_next_call():
    """An import that Ctrl-C ended must not leave a function that never works."""
    ends = iter([KeyboardInterrupt, None])

    def make():
        if (error := next(ends)) is not None:
            raise error
        return lambda: 7

    late = LateFunction(make, __name__, "late")
    with pytest.raises(KeyboardInterrupt):
        late()
    assert late() == late() == 7

"""One BLAS thread: for as long as it is asked for, in every library that the process has loaded by then."""

import gc
import sys
import threading
import types

from threadpoolctl import threadpool_info, threadpool_limits

from dkl import resources as limits
from dkl.resources import blas_controller, one_blas_thread


def blas():
    return {one["filepath"]: one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_nested_uses_end_with_the_last():
    blas_controller()  # which loads SciPy's BLAS: the limit of two is of that, too
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas()
        # The BLAS that SCS brings, which tests of conic solvers load, has one thread whatever it is told.
        assert 2 in before.values()
        with one_blas_thread():
            with one_blas_thread():
                assert set(blas().values()) == {1}
            assert set(blas().values()) == {1}
        assert blas() == before


def test_libraries_are_looked_for_again_once_something_is_imported(monkeypatch):
    """Faiss brings a BLAS of its own: loaded later, it has to be found too."""
    first = blas_controller()
    assert blas_controller() is first
    monkeypatch.setitem(sys.modules, "a_module_with_a_blas", types.ModuleType("a_module_with_a_blas"))
    assert blas_controller() is not first


def test_a_generator_is_collected_while_its_thread_holds_the_lock():
    """A pass over blocks that has failed is collected with its traceback, at any moment; it must not wait for itself."""

    def blocks(cycle):  # which holds the generator itself, so that a collection alone finds it
        with one_blas_thread():
            yield len(cycle)

    def collect():
        with limits._blas_lock:
            gc.collect()

    inside, cycle = limits._blas_depth, []
    cycle.append(blocks(cycle))
    assert next(cycle[0]) == 1 and limits._blas_depth == inside + 1
    del cycle
    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and limits._blas_depth == inside

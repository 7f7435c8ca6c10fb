"""One BLAS thread: for as long as it is asked for, in every library that the process has loaded by then."""

import sys
import types

from threadpoolctl import threadpool_info, threadpool_limits

from dkl.linalg.one_blas_thread import blas_controller, one_blas_thread


def blas():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_nested_uses_end_with_the_last():
    with threadpool_limits(limits=2, user_api="blas"):
        with one_blas_thread():
            with one_blas_thread():
                assert blas() == {1}
            assert blas() == {1}
        assert blas() == {2}


def test_libraries_are_looked_for_again_once_something_is_imported(monkeypatch):
    """Faiss brings a BLAS of its own: loaded later, it has to be found too."""
    first = blas_controller()
    assert blas_controller() is first
    monkeypatch.setitem(sys.modules, "a_module_with_a_blas", types.ModuleType("a_module_with_a_blas"))
    assert blas_controller() is not first

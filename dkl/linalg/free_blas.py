"""BLAS on several threads of ours at a time.

SciPy's wrappers hold the interpreter's lock while they work, so that threads wait for each other; these call the very
same functions (`scipy.linalg.cython_blas`) through ctypes, which lets it go.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cython_blas

if TYPE_CHECKING:
    from collections.abc import Callable

_LETTERS = {np.dtype(np.float64): ("d", ctypes.c_double), np.dtype(np.float32): ("s", ctypes.c_float)}


@cache
def _function(name: str, n_arguments: int) -> Callable[..., None]:
    """Return the Fortran subroutine `name` of SciPy's BLAS, as a ctypes function with pointer arguments."""
    capsule = cython_blas.__pyx_capi__[name]
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


def add_gram(total: NDArray, C: NDArray, beta: float = 1.0) -> None:
    """Set the upper triangle of total (M, M) to that of beta * total + C'C, in place, by syrk; C (t, M).

    Both C-contiguous and of one dtype, float32 or float64; ValueError for others: BLAS would read wrong memory.
    """
    if not (C.flags.c_contiguous and total.flags.c_contiguous and C.dtype == total.dtype):
        raise ValueError("C-contiguous arrays of one dtype are needed")
    letter, real = _LETTERS[C.dtype]
    rows, size = C.shape
    # For Fortran these are the transposes: C' (M, t) in columns of M, and the lower triangle of total'.
    n, k, lda, ldc = (ctypes.c_int(value) for value in (size, rows, max(1, size), max(1, size)))
    one, scale = real(1.0), real(beta)
    _function(letter + "syrk", 10)(
        b"L", b"N", ctypes.byref(n), ctypes.byref(k), ctypes.byref(one), C.ctypes.data, ctypes.byref(lda),
        ctypes.byref(scale), total.ctypes.data, ctypes.byref(ldc),
    )  # fmt: skip

"""Whether a matrix that is known by its products is a kernel matrix: symmetric, and positive semidefinite."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkl.blocks.kernel_operator import ASYMMETRY
from dkl.errors import InputError
from dkl.linalg.extreme_eigenvalues import lowest_eigenvalue

INDEFINITE = 1e-8
"""Share of the largest diagonal entry times n: how far below zero rounding may take an eigenvalue."""


def check_symmetric_products(operator: Any) -> None:
    """InputError where u'Kv and v'Ku differ for two random vectors: the test for a matrix that is read by rows alone.

    Two products. A K that differs from K' passes with probability zero, but for differences within ASYMMETRY.
    """
    u, v = np.random.default_rng(0).standard_normal((2, operator.n))
    Ku, Kv = operator.times(u), operator.times(v)
    one, other = float(u @ Kv), float(v @ Ku)
    if abs(one - other) > ASYMMETRY * float(np.linalg.norm(u) * np.linalg.norm(Kv)):
        got = f"u'Xv = {one:.9g} and v'Xu = {other:.9g} for random u and v"
        raise InputError("not symmetric", where="X", got=got, wanted="a kernel matrix", remedy="pass (X + X.T) / 2")


def check_psd(operator: Any, where: str = "X") -> None:
    """InputError, with the eigenvalue, for an `operator` with a negative one: see `lowest_eigenvalue` for how it is found.

    Up to 120 products beyond n = 400; `where` names the argument in the message.
    """
    lowest = lowest_eigenvalue(operator.times, operator.n)
    if lowest < -INDEFINITE * operator.n * max(float(operator.diagonal().max()), np.finfo(float).tiny):
        raise InputError(
            "not positive semidefinite", where=where, got=f"an eigenvalue of {lowest:.6g}",
            wanted="a kernel matrix", remedy="add to its diagonal, or drop negative eigenvalues",
        )  # fmt: skip

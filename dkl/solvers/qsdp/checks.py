"""Checks of the input of all solvers of a quadratic over the psd cone, before any work."""

from __future__ import annotations

import sys
from numbers import Integral, Real
from typing import Any

import numpy as np

from dkl.errors import InputError
from dkl.solvers.qsdp.interface import ConeQuadratic

UNSEEN = 1e-12
"""Share of the largest eigenvalue of the map's size up to which the map does not see a direction."""


def check_numbers(*, tol: Any, max_iter: object, **counts: Any) -> None:
    """Validate tol (finite, >= 0), max_iter (int >= 0) and other counts (int >= 1); raises InputError."""
    is_number = isinstance(tol, Real) and not isinstance(tol, bool)
    if not is_number or not 0 <= tol <= sys.float_info.max:
        raise InputError("no relative gap", where="tol", got=repr(tol), wanted="a finite number >= 0, such as 1e-6")
    for name, value, least in (("max_iter", max_iter, 0), *((name, value, 1) for name, value in counts.items())):
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
            raise InputError(
                "not a number of steps or rows", where=name, got=repr(value), wanted=f"an integer >= {least}"
            )


def check_bounded(problem: ConeQuadratic) -> None:
    """Raise InputError if C is negative in a direction that no B_t sees: along it f falls forever."""
    values, vectors = np.linalg.eigh(problem.map.size())
    unseen = vectors[:, values <= UNSEEN * max(float(values[-1]), 0.0)]
    if unseen.shape[1] and np.linalg.eigvalsh(unseen.T @ problem.C @ unseen)[0] < -UNSEEN * np.abs(problem.C).max():
        raise InputError(
            "the objective has no lower bound", where="C", got="a direction in which C is negative and A is zero",
            wanted="A that sees every direction in which C is negative", remedy="join the graph's components, or add pairs",
        )  # fmt: skip

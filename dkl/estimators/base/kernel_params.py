"""Parameters of the kernel K0: which kernels have them, and allowed values. Imports nothing large."""

from __future__ import annotations

from typing import Any

from dkl.errors import InputError
from dkl.estimators.base.rules import WIDTH, Either, NotGiven, Real, Rule, Word

KERNELS_WITH = {
    "gamma": ("rbf", "poly", "polynomial", "sigmoid", "chi2"),
    "degree": ("poly", "polynomial"),
    "coef0": ("poly", "polynomial", "sigmoid"),
    "sigma": ("laplacian",),
    "laplacian": ("laplacian",),
}
"""Kernels, by name, that have each parameter; "laplacian" is that of the neighbor graph."""
SHARPNESS = 3.0
"""Sharpness of the graph's local widths: exp(-3 d^2 / max(s_i, s_j)^2).

Many classes near one another need sharp weights.
"""
RULES: dict[str, Rule] = {
    "gamma": Either(Real(above=0), NotGiven()),
    "degree": Real(least=0),
    "coef0": Real(),
    "sigma": WIDTH,
    "laplacian": Word("normalized", "unnormalized"),
}


def check_kernel_params(kernel: Any, params: dict[str, object] | None) -> None:
    """Raise InputError for an unknown parameter of a named kernel or an invalid value; not for functions."""
    if not params or not isinstance(kernel, str):
        return
    known = [name for name, kernels in KERNELS_WITH.items() if kernel in kernels]
    unknown = sorted(map(str, set(params) - set(known)))
    if unknown:
        wanted = f"{', '.join(known) or 'none'} of kernel={kernel!r}"
        raise InputError("unknown parameters of the kernel", where="kernel_params", got=unknown, wanted=wanted)
    for name, value in params.items():
        if not RULES[name].accepts(value):
            where = f"kernel_params[{name!r}]"
            raise InputError(f"not a {name} of a kernel", where=where, got=repr(value), wanted=RULES[name].wanted)

"""Parameter checks in one table: the error names the parameter, what it was and what it may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from dkl.errors import InputError
from dkl.linalg.kernel_columns import KERNELS
from dkl.resources import parse_bytes

Check = tuple[Callable[[Any], bool], str]


def integer(least: int) -> Check:
    return lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least, (
        f"an integer >= {least}"
    )


def real(least: float = 0.0, *, strict: bool = True) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, Real) or isinstance(value, bool):
            return False
        try:
            if not math.isfinite(value):
                return False
        except OverflowError:  # an integer beyond every float
            return False
        return float(value) > least or (not strict and float(value) == least)

    return check, f"a finite number {'>' if strict else '>='} {least:g}"


def number() -> Check:
    return real(-math.inf)[0], "a finite number"


def one_of(*words: str) -> Check:
    return lambda value: isinstance(value, str) and value in words, " or ".join(repr(word) for word in words)


def either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check, _ in checks), ", or ".join(text for _, text in checks)


NONE: Check = (lambda value: value is None, "None")
BOOL: Check = (lambda value: isinstance(value, bool) or type(value).__name__ == "bool_", "True or False")

PARAMETERS: dict[str, Check] = {
    "rank": either(integer(1), one_of("auto")),
    "gamma": real(),
    "solver": one_of("admm", "factored"),
    "n_neighbors": integer(1),
    "sigma": either(real(), one_of("auto")),
    "laplacian": one_of("normalized", "unnormalized"),
    "neighbors_method": one_of("auto", "exact", "approximate"),
    "affinity": one_of("neighbors", "precomputed"),
    "rho": real(),
    "adapt_rho": BOOL,
    "max_iter": integer(1),
    "tol": real(strict=False),
    "target_gap": either(real(), NONE),
    "dtype": one_of("float64", "float32"),
    "checkpoint_every": either(integer(1), one_of("auto")),
    "n_jobs": either(integer(1), NONE),
    "warm_start": BOOL,
}


KERNEL_PARAMETERS: dict[str, Check] = {
    "kernel": either(one_of(*KERNELS), (callable, "a function")),
    "gamma": either(real(), NONE),
    "degree": real(strict=False),
    "coef0": number(),
    "kernel_params": either((lambda value: isinstance(value, dict), "a dictionary"), NONE),
    "n_columns": integer(1),
    "columns": either(one_of("uniform", "rpcholesky"), (lambda value: not isinstance(value, str), "an array")),
    "dtype": one_of("float64", "float32"),
    "n_jobs": either(integer(1), NONE),
}
"""Of every regressor on kernel columns."""

REGRESSION_PARAMETERS: dict[str, Check] = {
    "nu": either(real(), one_of("cv")),
    "lam": real(),
    "solver": one_of("active-set", "exact", "newton", "paper"),
    "sampling": one_of("uniform", "greedy"),
    "stopping": one_of("gap", "paper"),
    "fit_intercept": BOOL,
    "tol": real(strict=False),
    "max_iter": integer(1),
    "cv": either(
        integer(2), (lambda value: hasattr(value, "split") or hasattr(value, "__iter__"), "a splitter, or splits")
    ),
    "n_nus": integer(1),
    "store_columns": BOOL,
    "checkpoint_every": either(integer(1), one_of("auto")),
}


def _several(value: Any) -> bool:
    """A list of kernels: names, functions, or dictionaries of `kernel` and parameters of its own."""
    if not isinstance(value, (list, tuple)) or not value:
        return False
    known = set(KERNELS) - {"precomputed"}

    def is_kernel(item: Any) -> bool:
        return callable(item) or (isinstance(item, str) and item in known)

    return all(
        is_kernel(item) or (isinstance(item, dict) and set(item) <= KERNEL_KEYS and is_kernel(item.get("kernel")))
        for item in value
    )


KERNEL_KEYS = {"kernel", "gamma", "degree", "coef0", "kernel_params"}

SVC_PARAMETERS: dict[str, Check] = {
    **{name: check for name, check in KERNEL_PARAMETERS.items() if name not in ("n_columns", "columns")},
    "kernel": either(
        KERNEL_PARAMETERS["kernel"], (_several, "a list of kernels, each a name, a function or a dictionary")
    ),
    "gamma": either(real(), one_of("scale", "auto")),
    "C": real(),
    "rho": real(),
    "solver": one_of("accelerated", "gradient", "level"),
    "multi_class": one_of("ovo", "ovr"),
    "decision_function_shape": one_of("ovr", "ovo"),
    "tol": real(strict=False),
    "max_iter": integer(1),
}


def check_parameters(estimator: Any) -> None:
    """Check all parameters of a pairwise learner; InputError for the first that is wrong."""
    check_values(estimator, PARAMETERS)
    parse_bytes(estimator.memory_limit)


def check_values(estimator: Any, checks: dict[str, Check]) -> None:
    """Check the named parameters; InputError for the first that is wrong."""
    for name, (check, wanted) in checks.items():
        value = getattr(estimator, name)
        if not check(value):
            raise InputError(
                f"The {name!r} parameter of {type(estimator).__name__} must be {wanted}", got=f"{value!r} instead"
            )


def listed_callbacks(callbacks: Any) -> list[Callable[[dict[str, Any]], Any]]:
    """None, a function, or a list of them, as a list; InputError for anything else."""
    given = [] if callbacks is None else callbacks
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    for callback in found:
        if not callable(callback):
            wanted = "a function of an iteration's row, or a list of them"
            raise InputError("not a function", where="callbacks", got=repr(callback), wanted=wanted)
    return found

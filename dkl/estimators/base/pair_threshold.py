"""Pairs of rows by a learned metric: the distance up to which they are alike, and the metric as a function of two rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.estimators.base.rules import Real
from dkl.io.plain_arrays import in_memory, refuse_text

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserLabels

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]
STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")
"""Goals that a threshold may be chosen for, by metric-learn's names."""
RATES = ("max_tpr", "max_tnr")
"""Strategies that hold the other rate at `min_rate`."""
ABOVE = 1.0 + 1e-9
"""Multiple of the largest distance that all pairs are alike up to: the last digits depend on how many pairs are computed together."""


class MahalanobisMetric:
    """Learned distance |L (u - v)| as a function of two rows, which can be pickled and does not change as its learner is fitted."""

    def __init__(self, components: NDArray[np.float64]) -> None:
        """Keep L (k, d), in the units of the rows that are given."""
        self._components = components

    def __call__(self, u: object, v: object, squared: bool = False) -> float:
        """Return the distance of the rows u (d,) and v (d,), or its square.

        Raises
        ------
        InputError
            For anything but two rows of d finite numbers.
        """
        d = self._components.shape[1]
        apart = self._components @ (_row(u, "u", d) - _row(v, "v", d))
        found = float(lengths(apart[None])[0])
        return found * found if squared else found

    def __repr__(self) -> str:
        return f"<learned distance of rows of {self._components.shape[1]} numbers>"


def _row(given: object, where: str, d: int) -> Vector:
    """Return one row (d,) of finite numbers; InputError if it is not one."""
    try:
        row = np.asarray(given)
        found = np.asarray(row, np.float64) if row.dtype.kind in "biufO" else None
    except (TypeError, ValueError):  # objects that are not numbers, or lists of different lengths
        found = None
    if found is None or found.shape != (d,):
        got = type(given).__name__ if found is None else f"shape {found.shape}"
        raise InputError("not a row", where=where, got=got, wanted=f"shape ({d},), numbers")
    if not np.isfinite(found).all():
        raise InputError("not finite", where=f"{where}[{int(np.argmin(np.isfinite(found)))}]")
    return found


def lengths(apart: NDArray[np.float64]) -> Vector:
    """Return the Euclidean lengths (m,) of vectors (m, k), also of those whose squares are beyond double precision."""
    unit = 2.0 ** (np.frexp(np.abs(apart).max(axis=1, initial=0.0))[1] - 1.0)  # a power of 2, which rounds nothing
    return np.asarray(unit * np.linalg.norm(apart / unit[:, None], axis=1))


def checked_alike(alike: UserLabels, count: int) -> Flags:
    """Return which pairs (count,) are alike, given by signs +1 and -1 or by booleans; InputError where there are not both."""
    alike = in_memory(alike, "alike")
    refuse_text(alike, "alike")
    wanted = f"{count:,} values, +1 (alike) or -1 (not), or booleans"
    try:
        given = np.asarray(alike)
    except ValueError:  # lists of different lengths
        raise InputError("not a sign a pair", where="alike", got=type(alike).__name__, wanted=wanted) from None
    if given.dtype.kind == "O" and all(isinstance(one, (bool, np.bool_)) for one in given.flat):
        given = given.astype(bool)  # of a data frame
    if given.shape != (count,) or given.dtype.kind not in "biuf":
        got = f"shape {given.shape}, dtype {given.dtype}"
        raise InputError("not a sign a pair", where="alike", got=got, wanted=wanted)
    if given.dtype.kind != "b":
        is_sign = (given == 1) | (given == -1)
        if not is_sign.all():
            at = int(np.argmin(is_sign))
            raise InputError("not a sign", where=f"alike[{at}]", got=given[at], wanted="+1 or -1")
    is_alike = given == 1
    if is_alike.all() or not is_alike.any():
        got = f"{np.count_nonzero(is_alike):,} alike and {np.count_nonzero(~is_alike):,} not"
        raise InputError("pairs of one kind have no threshold", where="alike", got=got, wanted="at least one of each")
    return np.asarray(is_alike)


def check_strategy(strategy: str, min_rate: float | None, beta: float | None) -> None:
    """Raise InputError for an unknown strategy, or numbers that it does not have, lacks, or cannot take."""
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        wanted = " or ".join(f'"{name}"' for name in STRATEGIES)
        raise InputError("no such strategy", where="strategy", got=repr(strategy), wanted=wanted)
    rules = {"min_rate": (min_rate, RATES, Real(least=0, most=1)), "beta": (beta, ("f_beta",), Real(above=0))}
    for name, (value, strategies, rule) in rules.items():
        of = " or ".join(f'strategy="{one}"' for one in strategies)
        if value is not None and strategy not in strategies:
            raise InputError(
                "a number that this strategy does not have", where=name, got=f'strategy="{strategy}"', wanted=of
            )
        is_missing = value is None and strategy in RATES and name == "min_rate"
        if is_missing or (value is not None and not rule.accepts(value)):
            raise InputError(
                "not a rate" if name == "min_rate" else "not a weight", where=name, got=repr(value), wanted=rule.wanted
            )


def best_threshold(
    distances: Vector, is_alike: Flags, strategy: str, min_rate: float | None, beta: float | None
) -> float:
    """Return the distance up to which pairs are taken as alike that is best for the strategy.

    All ways to part the sorted distances (m,) are compared, none and all of them among them, and the threshold is the middle
    of the two distances that it parts. Of equally good ones the smallest counts, of "max_tnr" the largest.
    """
    values, at = np.unique(distances, return_inverse=True)
    counts = [np.concatenate([[0], np.cumsum(np.bincount(at, kind, len(values)))]) for kind in (is_alike, ~is_alike)]
    right, wrong = (count.astype(np.int64) for count in counts)  # pairs taken as alike that are, and that are not
    n_alike, n_other = int(right[-1]), int(wrong[-1])
    if strategy == "accuracy":
        # Accuracy counts right + n_other - wrong.
        best = int(np.argmax(right - wrong))
    elif strategy == "f_beta":
        weight = 1.0 if beta is None else float(beta) ** 2
        best = int(np.argmax((1 + weight) * right / (weight * n_alike + right + wrong)))
    else:
        assert min_rate is not None
        if strategy == "max_tpr":
            best = int(np.argmax(np.where((n_other - wrong) / n_other >= min_rate, right, -1)))
        else:
            others = np.where(right / n_alike >= min_rate, n_other - wrong, -1)
            # The last of equal ones takes the most pairs as alike.
            best = int(np.flatnonzero(others == others.max())[-1])
    if best == len(values):
        return float(values[-1] * ABOVE)
    if best:
        return _middle(float(values[best - 1]), float(values[best]))
    return float(0.5 * values[0]) if values[0] > 0 else -1.0  # below 0 not even equal rows are alike


def _middle(low: float, high: float) -> float:
    """Return a number from `low` to below `high`, between them where there is one."""
    middle = low + 0.5 * (high - low)
    return middle if middle < high else low

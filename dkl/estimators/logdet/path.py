"""Models along a path of gamma, the central path of a barrier method (Li et al. 2009, section 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.solvers.logdet.solve import LogDetSolution
from dkl.solvers.result import Result

PAPER = 2.0 ** np.arange(-12, 17, 4)
"""The range of the paper's table 3, by its multiplier 16."""


@dataclass(frozen=True)
class LogDetPath:
    """The solutions at k values of gamma, in the order given.

    objectives, gaps (k,): of (3), gaps relative; n_iter, n_products (k,): Newton steps and Hessian products; methods, solvers (k,):
    as `method_` and `solver_`; result: outcome, history and seconds of all of it. `model(i)` is the fitted learner of gammas[i].
    """

    gammas: NDArray[np.float64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    n_iter: NDArray[np.int64]
    n_products: NDArray[np.int64]
    methods: tuple[str, ...]
    solvers: tuple[str, ...]
    result: Result = field(repr=False)
    _make: Callable[[int], Any] = field(repr=False)

    @classmethod
    def of(
        cls, gammas: NDArray[np.float64], found: Sequence[LogDetSolution], result: Result, make: Callable[[int], object]
    ) -> Self:
        """Build the path from its solutions; `make(i)` makes the learner of solution i."""
        return cls(
            gammas,
            np.array([one.certificate.objective for one in found]),
            np.array([one.certificate.relative_gap for one in found]),
            np.array([one.n_iter for one in found]),
            np.array([one.n_products for one in found]),
            tuple(one.method for one in found),
            tuple(one.solver for one in found),
            result,
            make,
        )

    def model(self, i: int) -> Any:
        """Return the fitted learner of gammas[i]."""
        return self._make(range(len(self.gammas))[i])


def values_of_gamma(gammas: object) -> NDArray[np.float64]:
    """Return the given values (k,), or the paper's; InputError unless they are positive numbers."""
    if gammas is None:
        return np.array(PAPER)
    try:
        found = np.atleast_1d(np.asarray(gammas, np.float64))
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    if found.ndim != 1 or not found.size or not (np.isfinite(found).all() and (found > 0).all()):
        got = repr(gammas)[:80]
        raise InputError("not a list of values", where="gammas", got=got, wanted="finite numbers > 0")
    return found

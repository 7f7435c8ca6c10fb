"""Constraints tr(K A_t) of the losses of Li et al. 2009, Table 2, and the bounds of the ITML loss."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import DataWarning, InputError
from dkl.estimators.base.prior_kernels import PriorKernel
from dkl.estimators.base.rules import (
    LOSS_PARAMETERS,
    MATRIX_LOSSES,
    PAIR_LOSSES,
    PARAMETER_RULES,
    SIMILARITY_LOSSES,
    TRIPLET_LOSSES,
)
from dkl.estimators.base.side_information import SideInformation
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import Loss, as_loss
from dkl.side_information.pairs import Pairs

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserLoss, UserParams

PERCENTILES = (5, 95)
"""Percentiles of the squared distances that ITML's bounds are (Davis et al. 2007)."""
EQUAL = 1e-13
"""Share of the largest squared distance up to which a distance is rounding error (of equal rows)."""
TIE = 1e-10
"""Share by which percentiles are widened, so that distances that are all but equal are not beyond a bound by rounding."""
PAIRS_AT_A_TIME = 4096
MOST_POINTS = 1000
"""Maximum number of points, evenly spaced among constrained rows, whose distances give percentiles."""

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


def constraints_and_loss(
    side: SideInformation, loss: UserLoss, params: dict[str, object] | None, distances: PriorDistances
) -> tuple[ConstraintSet, Loss]:
    """Return the constraints on n rows, and psi.

    "log", "lmnn", "hinge", "linear": of triplets; the others of pairs; all but "itml" of matrices; a loss of one's own: of
    triplets or matrices where there are any, else of the pairs' squared distances, must-links first.

    params: `t` of lmnn and hoi; `upper` and `lower` of itml, by default the percentiles 5 and 95 of the squared distances
    under K0. The choice must have passed `check_loss_choice`.
    """
    given, name = dict(params or {}), loss if isinstance(loss, str) else None
    if side.matrices is not None:
        return ConstraintSet.of_matrices(side.matrices), as_loss(loss, **given)
    if name in TRIPLET_LOSSES or (name is None and side.triplets is not None):
        assert side.triplets is not None
        return ConstraintSet.triplets(side.n, side.triplets.triplets), as_loss(loss, **given)
    assert side.pairs is not None
    # Other losses of pairs are finite at distance 0.
    pairs = side.pairs if name != "itml" else without_equal_rows(side.pairs, distances)
    ends, sign = np.stack([pairs.i, pairs.j], axis=1), pairs.sign
    if name in SIMILARITY_LOSSES:
        return ConstraintSet.similarities(side.n, ends, sign.astype(float)), as_loss(loss, **given)
    found = ConstraintSet.distances(side.n, ends)
    if name is None:
        return found, as_loss(loss, **given)
    upper, lower = itml_bounds(given, distances, found.points)
    return found, as_loss(loss, similar=sign > 0, **{**given, "upper": upper, "lower": lower})


def check_loss_choice(side: SideInformation, loss: UserLoss, params: dict[str, object] | None) -> None:
    """Raise InputError for an invalid loss or parameters, or one that does not suit the side information.

    Called before any kernel is computed.
    """
    name = loss if isinstance(loss, str) else None
    check_loss_params(name, params)
    if side.matrices is not None:
        if name is not None and name not in MATRIX_LOSSES:
            raise _other_kind(f'loss="{name}"', "pairs or labels", "constraints", MATRIX_LOSSES)
    elif name in TRIPLET_LOSSES and side.triplets is None:
        raise _other_kind(f'loss="{name}"', "triplets or labels", "pairs", PAIR_LOSSES)
    elif name in PAIR_LOSSES and side.pairs is None:
        raise _other_kind(f'loss="{name}"', "pairs or labels", "triplets", TRIPLET_LOSSES)
    if name is None:
        as_loss(loss)


def check_loss_params(name: str | None, params: dict[str, object] | None) -> None:
    """Raise InputError for a parameter that the loss `name` does not have, or an invalid value."""
    known = LOSS_PARAMETERS.get(name or "", ())
    unknown = sorted(map(str, set(params or ()) - set(known)))
    if unknown:
        wanted = ", ".join(known) or "none"
        raise InputError("unknown parameters of the loss", where="loss_params", got=unknown, wanted=wanted)
    for key, value in (params or {}).items():
        if not PARAMETER_RULES[key].accepts(value):
            what, wanted = "not a bend" if key == "t" else "not a bound", PARAMETER_RULES[key].wanted
            raise InputError(what, where=f"loss_params[{key!r}]", got=repr(value), wanted=wanted)


def _other_kind(loss: str, needs: str, got: str, others: tuple[str, ...]) -> InputError:
    wanted = " or ".join(f'"{other}"' for other in others)
    return InputError(f"{loss} is of {needs}", where="loss", got=got, wanted=f"a loss of {got}: {wanted}")


def without_equal_rows(pairs: Pairs, distances: PriorDistances) -> Pairs:
    """Return the pairs without cannot-links at distance 0 under the prior; a DataWarning counts them.

    Their distance stays 0, and ITML's loss infinite.
    """
    if not pairs.n_cannot:
        return pairs
    found = distances.of(pairs.cannot_link[:, 0], pairs.cannot_link[:, 1])
    equal = found <= EQUAL * found.max()
    if not equal.any():
        return pairs
    i, j = pairs.cannot_link[equal][0].tolist()
    count = np.count_nonzero(equal)
    plural, are = ("s", "are") if count > 1 else ("", "is")
    text = f"{count} cannot-link pair{plural} of rows at distance 0 under {distances.of_what} {are} left out, the first ({i}, {j})"
    warnings.warn(text, DataWarning, stacklevel=5)
    if equal.all() and not pairs.n_must:
        raise InputError("no pairs of rows that differ", where="cannot_link", got=text, wanted="at least one")
    return Pairs(pairs.must_link, pairs.cannot_link[~equal])


def itml_bounds(params: UserParams | None, distances: PriorDistances, points: Indices) -> tuple[float, float]:
    """Return (u, l): similar rows are to be nearer than u, others farther than l.

    What `params` does not have is a percentile of the squared distances among `points` (p,).
    """
    given = dict(params or {})
    # Evenly spaced, not drawn: percentiles of half a million distances need no seed.
    some = points[np.unique(np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.intp))]
    i, j = np.triu_indices(len(some), 1)
    found = distances.of(some[i], some[j])
    # Of many equal rows the percentile may be 0, or its rounding, which no distance comes under.
    apart = found[found > EQUAL * found.max(initial=0.0)]
    least = float(apart.min()) if apart.size else 1.0
    near, far = np.percentile(found, PERCENTILES)
    upper, lower = max(float(near) * (1.0 + TIE), least), max(float(far) * (1.0 - TIE), least)
    chosen = {"upper": given.get("upper", upper), "lower": given.get("lower", lower)}
    return float(chosen["upper"]), float(chosen["lower"])


class PriorDistances(Protocol):
    """Squared distances of the n rows under the given kernel K0 or metric W0."""

    of_what: ClassVar[str]
    """Name of the kernel or metric that gives the distances, in warnings."""

    def of(self, i: Indices, j: Indices) -> Matrix:
        """Return the squared distances (c,) between the rows i (c,) and j (c,)."""


@dataclass(frozen=True)
class KernelDistances:
    """Squared distances K0_ii + K0_jj - 2 K0_ij under K0."""

    prior: PriorKernel
    of_what: ClassVar[str] = "the given kernel"

    def of(self, i: Indices, j: Indices) -> Matrix:
        """Return the squared distances (c,) between the rows i and j, from their kernel."""
        # The kernel among the distinct rows, once: pairs share many of them.
        points, ends = np.unique(np.stack([i, j]), return_inverse=True)
        (i, j), K = ends.reshape(2, -1), self.prior.within(points)
        return np.maximum(K[i, i] + K[j, j] - 2 * K[i, j], 0.0)


@dataclass(frozen=True)
class MetricDistances:
    """Squared distances (x - z)' W0 (x - z) of rows (n, d)."""

    rows: Matrix
    W0: Matrix
    of_what: ClassVar[str] = "the given metric"

    def of(self, i: Indices, j: Indices) -> Matrix:
        """Return the squared distances (c,) between rows i and j, holding a block of differences at a time."""
        parts = []
        for lo in range(0, len(i), PAIRS_AT_A_TIME):
            apart = self.rows[i[lo : lo + PAIRS_AT_A_TIME]] - self.rows[j[lo : lo + PAIRS_AT_A_TIME]]
            with blas_threads_for(len(self.W0)):
                parts.append(np.einsum("cd,cd->c", apart @ self.W0, apart))
        # Rounding may leave a distance of equal rows below 0.
        return np.maximum(np.concatenate(parts), 0.0)

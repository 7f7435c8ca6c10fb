"""K0 on the labelled block, in the form that its products are made by: inverted, lifted off its null space, or factored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.inverse_forms import DenseInverse, FactoredInverse, KernelForm, psd_factor
from dkl.problems.logdet_constraints import ConstraintSet, Vector

Array = NDArray[np.float64]
SYMMETRY = 1e-10
"""Relative to the largest entry: how far K0 may be from its transpose."""
UNSEEN = 1e-10
"""Relative: A_t N below this is 0."""


def form_of(block: Array, constraints: ConstraintSet) -> tuple[KernelForm, Array]:
    """(form, s^1/2 N): N spans the null space where K + s N N' is what the form works on, else it has no columns."""
    nothing = np.zeros((len(block), 0))
    direct = DenseInverse.of(block, constraints.pattern)
    if direct is not None:
        return direct, nothing
    factor = psd_factor(block)
    if factor is None:
        lowest = float(np.linalg.eigvalsh(block)[0])
        raise InputError(
            "not positive semidefinite", where="K0", got=f"an eigenvalue of {lowest:.3g}", wanted="0 or more"
        )
    L, N = factor
    if N.shape[1] and all(_is_unseen(constraints, vector) for vector in N.T):
        lifted = N * np.sqrt(float(np.trace(block)) / max(1, L.shape[1]))
        direct = DenseInverse.of(block + lifted @ lifted.T, constraints.pattern)
        if direct is not None:
            return direct, lifted
    return FactoredInverse(constraints.pattern, L), nothing


def _is_unseen(constraints: ConstraintSet, vector: Vector) -> bool:
    """Whether A_t vector = 0 for all t."""
    seen = constraints.incidence @ constraints.pattern.times(vector)
    size = abs(constraints.incidence).max() * float(np.abs(vector).max())
    return bool(abs(seen).max() <= UNSEEN * size)


def root_of(W0: Array, d: int) -> Array:
    """R (d, d) with W0 = R'R; InputError where W0 is not symmetric positive definite."""
    if W0.shape != (d, d):
        raise InputError("of another size", where="W0", got=W0.shape, wanted=(d, d))
    check_symmetric(W0, "W0")
    try:
        return np.asarray(np.linalg.cholesky(W0).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh(W0)[0])
        raise InputError(
            "not positive definite", where="W0", got=f"an eigenvalue of {lowest:.3g}", wanted="more than 0"
        ) from None


def check_symmetric(K0: Array, name: str = "K0") -> None:
    """InputError unless K0 is finite and its own transpose to rounding."""
    if not np.isfinite(K0).all():
        raise InputError("not finite", where=name)
    off = float(np.abs(K0 - K0.T).max(initial=0.0))
    if off > SYMMETRY * float(np.abs(K0).max(initial=0.0)):
        raise InputError("not symmetric", where=name, got=f"entries {off:.3g} from those of the transpose")

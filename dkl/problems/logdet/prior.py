"""K0 on the labeled block, in the form of its products: inverted, lifted off its null space, factored."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io.plain_arrays import refuse_too_large
from dkl.linalg.symmetric.inverse_forms import DenseInverse, FactoredInverse, KernelForm, psd_factor
from dkl.problems.logdet.constraints import ConstraintSet, Vector

Array = NDArray[np.float64]
OTHER = "take another kernel or other parameters of it; of a matrix add to the diagonal, or drop negative eigenvalues"
SYMMETRY = 1e-10
"""Relative to the largest entry: how far K0 may be from its transpose."""
LARGEST = 1e70
"""Largest entry of K0, or of a metric's rows: fourth powers are still finite."""
INDEFINITE = 1e-8
"""Share of b times the largest entry: eigenvalues this far below 0 are rounding's, as `check_psd` has it."""
UNSEEN = 1e-10
"""Relative: A_t N below this is 0."""


def form_of(block: Array, constraints: ConstraintSet) -> tuple[KernelForm, Array]:
    """Return (form, s^1/2 N): N spans the null space if the form works on K + s N N', else is empty."""
    nothing = np.zeros((len(block), 0))
    direct = DenseInverse.of(block, constraints.pattern)
    if direct is not None:
        return direct, nothing
    L, N = psd_factor(block) or _nearest_factor(block)
    if not L.shape[1]:
        raise InputError("zero on all rows that constraints touch", where="K0", remedy=OTHER)
    if N.shape[1] and all(_is_unseen(constraints, vector) for vector in N.T):
        lifted = N * np.sqrt(float(np.trace(block)) / max(1, L.shape[1]))
        direct = DenseInverse.of(block + lifted @ lifted.T, constraints.pattern)
        if direct is not None:
            return direct, lifted
    return FactoredInverse(constraints.pattern, L), nothing


def _nearest_factor(block: Array) -> tuple[Array, Array]:
    """Return (L (b, r), N (b, b - r)) as `psd_factor`, for a block psd but for rounding."""
    values, vectors = np.linalg.eigh(block)
    if values[0] < -INDEFINITE * len(block) * float(np.abs(block).max()):
        got = f"an eigenvalue of {values[0]:.3g}"
        raise InputError("not positive semidefinite", where="K0", got=got, wanted="0 or more", remedy=OTHER)
    counts = values > -values[0]
    return vectors[:, counts] * np.sqrt(values[counts]), vectors[:, ~counts]


def _is_unseen(constraints: ConstraintSet, vector: Vector) -> bool:
    """Return whether A_t vector = 0 for all t, to rounding."""
    seen = constraints.incidence @ constraints.pattern.times(vector)
    size = abs(constraints.incidence).max() * float(np.abs(vector).max())
    return bool(abs(seen).max() <= UNSEEN * size)


def root_of(W0: Array, d: int) -> Array:
    """Return R (d, d) with W0 = R'R; raises InputError where W0 is not symmetric positive definite."""
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
    """Raise InputError unless K0 is finite and its own transpose to rounding."""
    if not np.isfinite(K0).all():
        raise InputError(
            "not finite", where=name, remedy="scale the rows or the kernel, or take other parameters of it"
        )
    check_scale(K0, name)
    off = float(np.abs(K0 - K0.T).max(initial=0.0))
    if off > SYMMETRY * float(np.abs(K0).max(initial=0.0)):
        raise InputError("not symmetric", where=name, got=f"entries {off:.3g} from those of the transpose")


def check_scale(values: Array, name: str) -> None:
    """Raise InputError where squares of products of these values would overflow."""
    refuse_too_large(values, LARGEST, name, remedy=f"scale {name}")

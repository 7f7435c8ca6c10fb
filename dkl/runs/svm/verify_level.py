"""`dkl verify` of a classifier by the level method, whose gap is proven by means over the points of its cuts.

For any vectors u and v, of which the run stores those of each machine,

    f(alpha)  >=  (2 Y K Y u - 2 e + v / rho)'alpha - u'Y K Y u - 3/4 |v|^(4/3) / rho

by Fenchel's inequality for alpha'Y K Y alpha and |alpha|^4 / (4 rho). The right side is least over P at one of the kinks of
`least_charge`. All that f can be less than 0 at has |alpha|^3 <= 8 rho sqrt(n), and so C counts up to that alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dkl.errors import StoreError
from dkl.runs.svm.verify_machine import AGREE, BinaryProblem
from dkl.runs.verify.recomputed import Vector, least_charge, middle_intercept
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from numpy.typing import NDArray

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Means:
    """Stored means of alpha and |alpha|^2 alpha, (rows,) each, of one machine."""

    alpha: Vector
    cubic: Vector

    def bound(
        self, machine: BinaryProblem, scores: NDArray[np.float64], rho: float, diagonal: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Return (lower bound of f, its rounding), from scores (kernels, rows) of y alpha and K's diagonal, alike."""
        y, pull = machine.y, self.cubic / rho
        C = np.minimum(machine.C, 2 * np.cbrt(rho * np.sqrt(len(y))))
        product = y * (machine.shares @ scores)
        gradient = 2 * (product - 1) + pull
        quadratic, quartic = float(self.alpha @ product), 0.75 * float(np.linalg.norm(self.cubic)) ** (4 / 3) / rho
        charge, b = least_charge(gradient, y, C), middle_intercept(gradient, y, C)
        terms = 2 * np.abs(product) + 2 + np.abs(pull) + 2 * abs(b)
        charged = float(C @ np.where(-gradient - 2 * b * y > 0, terms, 0.0))
        # Rounding of K times the alpha and the mean, of which the reported gap counts a part: terms are at most sqrt(K_ii K_jj) alpha_j.
        sizes = np.sqrt(np.maximum(machine.shares @ diagonal, 0.0))
        reached = 2 * sizes * float(sizes @ (machine.alpha + self.alpha))
        terms = reached + float(machine.alpha @ machine.alpha) / rho * machine.alpha + 2 + 2 * abs(machine.b)
        rounding = EPS * float((C + machine.alpha) @ terms)
        return -quadratic - quartic - charge, AGREE * (abs(quadratic) + quartic + charged) + rounding


def stored_means(run: RunStore, machines: list[BinaryProblem]) -> list[Means]:
    """Return the means of each machine; StoreError unless there is one for each of its rows."""
    where, ends = f"{run.path}/bound", np.cumsum([len(machine.rows) for machine in machines])
    if not (run.path / "bound").is_dir():
        raise StoreError("what proves the bound of the level method is not stored", where=where)
    found = run.read_arrays("bound")
    if not found["alpha"].shape == found["cubic"].shape == (int(ends[-1]),):
        raise StoreError("not a number for each row of each machine", where=where, got=found["alpha"].shape)
    parts = (np.split(found[name], ends[:-1]) for name in ("alpha", "cubic"))
    return [Means(*pair) for pair in zip(*parts, strict=True)]


def signed(means: list[Means], machines: list[BinaryProblem], n: int) -> NDArray[np.float64]:
    """Return y alpha (machines, n) of the means."""
    found = np.zeros((len(machines), n))
    for row, one, machine in zip(found, means, machines, strict=True):
        row[machine.rows] = machine.y * one.alpha
    return found

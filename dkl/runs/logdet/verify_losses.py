"""The constraints and losses of Li et al. 2009, Table 2, once more for `dkl verify`: entries of K, and psi with its slope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.base.rules import HINGES, SIMILARITY_LOSSES, TRIPLET_LOSSES
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.settings import LogDetRunSettings

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
Psi = Callable[[Vector], tuple[Vector, Vector]]
BEND = 0.7
"""Default of t in (8)."""
PERCENTILES, MOST_POINTS = (5, 95), 1000
"""Percentiles of squared distances that are ITML's bounds, and the most points to take them from."""
EQUAL = 1e-13
"""Share of the largest squared distance up to which K0 takes rows as equal."""


@dataclass(frozen=True)
class Terms:
    """tr(K A_t) = sum_k signs[k] K[i[t, k], j[t, k]], rows by their place among those touched; A_t is made symmetric.

    touched (p,) rows of the data; m: what gamma is divided by; loss: psi and psi' of margins; has_corner: whether it is a hinge itself.
    """

    touched: Rows
    i: Rows
    j: Rows
    signs: Matrix
    m: float
    loss: Psi
    has_corner: bool = False

    @property
    def lowest(self) -> float:
        """Return a lower bound of F that needs no work: 0 for losses nowhere negative, else -inf."""
        return float("-inf") if float(self.loss(np.full(self.count, 1e6))[0].min()) < 0 else 0.0

    @property
    def count(self) -> int:
        """Return the number of constraints."""
        return len(self.i)

    def margins(self, K: Matrix) -> Vector:
        """Return the margins (c,) of the constraints."""
        return np.asarray((self.signs * K[self.i, self.j]).sum(axis=1))

    def sizes(self, K: Matrix) -> Vector:
        """Return bounds (c,) on what margins are summed of: |K_ij| <= sqrt(K_ii K_jj) for a psd K."""
        D = np.sqrt(np.abs(np.diagonal(K)))
        return np.asarray((np.abs(self.signs) * D[self.i] * D[self.j]).sum(axis=1))

    def of_entries(self, bounds: Matrix) -> Vector:
        """Return bounds (c,) on margins from `bounds` (p, p) on the entries of K."""
        return np.asarray((np.abs(self.signs) * bounds[self.i, self.j]).sum(axis=1))

    def some(self, chosen: NDArray[np.bool_], n_labelled: int | None) -> Terms:
        """Return the chosen terms (c,) alone.
        n_labelled: what gamma is divided by; None: the number of rows that they touch."""

        def loss(margins: Vector) -> tuple[Vector, Vector]:
            whole = np.ones(self.count)
            whole[chosen] = margins
            value, slope = self.loss(whole)
            return value[chosen], slope[chosen]

        i, j = self.i[chosen], self.j[chosen]
        m = len(np.unique([i, j])) if n_labelled is None else n_labelled
        return Terms(self.touched, i, j, self.signs[chosen], float(m), loss, self.has_corner)

    def dual_point(self, margins: Vector, given: Vector) -> tuple[Vector, Vector]:
        """Return (y, -psi*(y)) (c,) for the dual bound: y = psi'(margins), or the `given` y where psi' jumps."""
        if self.has_corner:
            y = np.clip(given, -1.0, 0.0)
            return y, -y
        value, slope = self.loss(margins)
        return slope, value - margins * slope

    def matrix(self, weights: Vector) -> Matrix:
        """Return sum over t of weights_t A_t, (p, p)."""
        U = np.zeros((len(self.touched),) * 2)
        np.add.at(U, (self.i, self.j), 0.5 * weights[:, None] * self.signs)
        return U + U.T


def terms_of(side: SideInformation, points: Rows, K0: Matrix, settings: LogDetRunSettings) -> Terms:
    """Return constraints and loss of the settings. K0 (p, p) at the stored `points` gives ITML's bounds."""
    name = settings.loss
    if name in TRIPLET_LOSSES:
        assert side.triplets is not None
        a, s, d = side.triplets.triplets.T
        return _terms(side, ((a, s, 2.0), (a, d, -2.0), (s, s, -1.0), (d, d, 1.0)), name, _named(name, settings.t))
    assert side.pairs is not None
    i, j, sign = side.pairs.i, side.pairs.j, side.pairs.sign.astype(float)
    if name in SIMILARITY_LOSSES:
        return _terms(side, ((i, j, 2.0 * sign),), name, _named(name, settings.t))
    places = np.searchsorted(points, np.stack([i, j])).clip(max=len(points) - 1)
    # Rows of a cannot-link that are equal may be in no other pair, and so at no point.
    apart = np.where((points[places] == [i, j]).all(axis=0), _distances(K0, *places), 0.0)
    kept = (sign > 0) | ~(apart[sign < 0].max(initial=0.0) * EQUAL >= apart)
    i, j, similar = i[kept], j[kept], sign[kept] > 0
    some = np.unique(np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.intp))
    among = _distances(K0, *(some[k] for k in np.triu_indices(len(some), 1)))
    least = float(among[among > 0].min()) if (among > 0).any() else 1.0
    upper, lower = (max(float(value), least) for value in np.percentile(among, PERCENTILES))
    bounds = settings.upper or upper, settings.lower or lower
    return _terms(side, ((i, i, 1.0), (i, j, -2.0), (j, j, 1.0)), name, _itml(similar, *bounds))


def _terms(side: SideInformation, parts: tuple[tuple[Rows, Rows, float | Vector], ...], name: str, loss: Psi) -> Terms:
    i, j = np.stack([one for one, _, _ in parts], 1), np.stack([other for _, other, _ in parts], 1)
    signs = np.stack([np.broadcast_to(weight, len(i)) for _, _, weight in parts], 1)
    touched, places = np.unique(np.concatenate([i, j], axis=1), return_inverse=True)
    i, j = np.split(places.reshape(len(i), -1), 2, axis=1)
    return Terms(touched, i, j, signs, float(side.n_labelled or len(touched)), loss, name in HINGES)


def _distances(K: Matrix, i: Rows, j: Rows) -> Vector:
    return np.asarray(np.maximum(K[i, i] + K[j, j] - 2 * K[i, j], 0.0))


def _named(name: str, t: float | None) -> Psi:
    """Return psi of a loss other than ITML's, by its name; t: where it bends (None: BEND). A hinge itself is (8) at t = 1."""
    corner, bend = _hinge(1.0), _hinge(BEND if t is None else t)
    return {"log": _log, "linear": _linear, "lmnn": bend, "hoi": bend, "hinge": corner, "hoi_hinge": corner}[name]


def _log(a: Vector) -> tuple[Vector, Vector]:
    """Return log(1 + exp(-2 a)) and its slope -2 / (1 + exp(2 a))."""
    value = np.maximum(-2 * a, 0.0) + np.log1p(np.exp(-2 * np.abs(a)))
    return value, -2.0 / (1.0 + np.exp(np.minimum(2 * a, 700.0)))


def _linear(a: Vector) -> tuple[Vector, Vector]:
    """Return -a and its slope."""
    return -a, np.full_like(a, -1.0)


def _hinge(t: float) -> Psi:
    """Return psi of (8): linear up to t, quadratic to 1, then 0."""

    def psi(a: Vector) -> tuple[Vector, Vector]:
        steep, quadratic = a <= t, (a > t) & (a < 1)
        value, slope = np.zeros_like(a), np.zeros_like(a)
        value[steep], slope[steep] = (2 + 2 * t - 4 * a[steep]) / (3 + t), -4 / (3 + t)
        rest = 1 - a[quadratic]
        value[quadratic], slope[quadratic] = 2 * rest**2 / ((1 - t) * (3 + t)), -4 * rest / ((1 - t) * (3 + t))
        return value, slope

    return psi


def _itml(similar: NDArray[np.bool_], upper: float, lower: float) -> Psi:
    """Return ITML's psi: x/b - log(x/b) - 1 for a similar pair over b = upper, or another under b = lower."""
    b = np.where(similar, upper, lower)

    def psi(a: Vector) -> tuple[Vector, Vector]:
        counts = np.where(similar, a > b, a < b)
        ratio = np.where(counts, a / b, 1.0)
        return ratio - np.log(ratio) - 1.0, np.where(counts, 1.0 / b - 1.0 / np.where(counts, a, 1.0), 0.0)

    return psi

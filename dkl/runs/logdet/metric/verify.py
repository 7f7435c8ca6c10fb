"""`dkl verify` of a learned metric: objective and gap once more, from the data, the constraints and what is stored.

Nothing here comes from the solvers or the problems. With W0 = R'R, rows X of the points that constraints touch about their mean,
L = X R' (p, d) and W = R' V R,

    F = w sum_t psi(a_t) + tr(V - I) - log det V,    a_t = tr(X W X' A_t),    w = gamma / m, or gamma

for the components that are stored, W = C'C, and the bound is, for l_t = w psi'(a_t) and S = L' (sum_t l_t A_t) L,

    D = w sum_t (psi(a_t) - a_t psi'(a_t)) + log det(I + S)

as in dkl/runs/logdet/verify.py, whose K is L V L'. At the gammas before the last the metric is that of the stored multipliers, of which
V = (I + S)^-1; the stored components must give this too. Of a metric that is cut to some components these are all of them, and
`Cut` compares those that are handed out.

For W = F'F of all components F (d, d) the metric places the rows X (n, d), about their mean, at Z = X F'. The components C (k, d) that are
handed out are C = U F, where the rows of U (k, d) are orthonormal eigenvectors of Z'Z of its k largest eigenvalues, in descending order:
leading principal axes of the learned rows. Where some are equal any eigenvectors will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.plot_rows import sampled
from dkl.estimators.logdet.model import check_metric_model
from dkl.estimators.logdet.settings import LogDetMetricRunSettings
from dkl.resources import format_bytes
from dkl.runs.logdet import verify_held_out
from dkl.runs.logdet.inputs import dense, verified_bytes
from dkl.runs.logdet.verify_held_out import Measures
from dkl.runs.logdet.verify_proof import (
    AGREE,
    KNOWN,
    PIECE,
    Apart,
    Terms,
    conjugate_sum,
    gradient_bound,
    in_domain,
    log_det,
    symmetric,
    terms_of,
)
from dkl.runs.report import MOST_OUTPUTS, Comparison, named
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.runs.logdet.inputs import LogDetInputs
    from dkl.stores.seals import Json


Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
NEGLIGIBLE = 1e-10
"""Share of the largest variance below which the covariance has no direction."""
UNSURE = 0.5
"""Relative: how near a variance is to that share, where rounding may take it for either."""
TINY = float(np.finfo(float).tiny)
LEAST_AGREE, MOST_AGREE, MANY = 1e-10, 1e-6, 100.0
"""Least and largest relative tolerance of W, and multiple of the estimated rounding that is allowed."""


def claims(run: RunStore, inputs: LogDetInputs, settings: LogDetMetricRunSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of each gamma's numbers, and of the metric stored for the last."""
    found, outputs = run.read_arrays("model"), run.report()["outputs"]
    check_metric_model(run, found)
    if len(outputs) != len(found["gammas"]) or len(outputs) != len(settings.gammas):
        raise StoreError("model and report do not fit together", where=str(run.path), got=len(outputs))
    size = verified_bytes(inputs.sizes(settings), is_cut=settings.n_components is not None)
    if size > budget:
        what = f"the metric of {inputs.rows.n_features:,} columns does not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(size))
    X = dense(inputs.rows.read(0, inputs.rows.n))
    side, points, W0 = inputs.side(X, settings), found["touched"], found["prior"]
    yield Comparison("W0 beside the data", 0.0, *_of_prior(W0, X, settings.prior))
    drawn = X[sampled(len(X))]
    apart = float(np.abs(found["points"] - drawn).max()) if found["points"].shape == drawn.shape else np.inf
    yield Comparison("rows of the picture", 0.0, apart, AGREE * float(np.abs(drawn).max()))
    cut, whole = Cut.of(X, settings.n_components), found.get("whole_components", found["components"])
    if cut is not None:
        yield Comparison("components", float(run.report()["n_components"]), float(len(found["components"])), 0.0)
        yield from cut.claims(found["components"], whole)
    metrics = OfMetric.near(W0, X[points], cut)
    terms = terms_of(side, points, metrics.apart_under_prior(), settings)
    if terms.touched.shape != points.shape or not np.array_equal(terms.touched, points):
        raise StoreError("the stored metric is not of the rows that the constraints touch", where=f"{run.path}/model")
    if found["multipliers"].shape[1] != terms.count:
        raise StoreError("not a multiplier for each constraint", where=f"{run.path}/model")
    weights = found["gammas"] / (terms.m if settings.normalize_gamma else 1.0)
    for k, output in enumerate(outputs):
        which = "" if len(outputs) == 1 else f" at gamma {found['gammas'][k]:.6g}"
        multipliers, is_last = found["multipliers"][k], k == len(outputs) - 1
        V = metrics.of_multipliers(multipliers, terms)
        slack = 0.0
        if is_last:
            stored = metrics.relative(whole)
            yield _of_components(stored, V, metrics, multipliers, terms)
            V = stored
        else:  # with another rounding, as V is not stored
            other = metrics.turned().of_multipliers(multipliers, terms)
            one, two = (metric.proven(relative, float(weights[k]), multipliers, terms)[0]
                        for metric, relative in ((metrics, V), (metrics.turned(), other)))  # fmt: skip
            slack = abs(one - two)
        compared = _of_gamma(output, float(weights[k]), V, multipliers, metrics, terms, settings.tol, slack)
        yield from named(compared, which, quiet=k < len(outputs) - MOST_OUTPUTS)
    yield from verify_held_out.claims(run, side, points, metrics, terms, settings, found["gammas"][-1])


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues (d,), all positive, and eigenvectors (d, d) of V.

    V itself keeps its small eigenvalues to some last digits of the largest alone, and log det V adds up the digits of all.
    """

    values: Vector
    vectors: Matrix

    @property
    def root(self) -> Matrix:
        """Return B (d, d), V = B B'."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    @property
    def matrix(self) -> Matrix:
        """Return V."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)

    def log_det(self) -> float:
        """Return log det V."""
        near = np.maximum(self.values - 1.0, -0.5)
        return float(np.where(self.values > 0.5, np.log1p(near), np.log(self.values)).sum())


@dataclass(frozen=True)
class OfMetric:
    """Metrics W = R' V R near W0 = R'R (d, d), by L = X R' (p, d) of the points X about their mean; cut: of what is handed out."""

    X: Matrix
    R: Matrix
    L: Matrix
    cut: Cut | None = None

    @classmethod
    def near(cls, W0: Matrix, rows: Matrix, cut: Cut | None = None) -> OfMetric:
        """Return the metrics near W0, by the rows (p, d) of the points."""
        # Less a row first: of rows far from 0 the mean alone would be rounded to their last digits.
        X = rows - rows[0]
        X -= X.mean(axis=0)
        R: Matrix = np.asarray(np.linalg.cholesky(W0).T, np.float64)
        return cls(X, R, X @ R.T, cut)

    def turned(self) -> OfMetric:
        """Return the same by another root of W0, the symmetric one, which has another rounding."""
        values, vectors = np.linalg.eigh(self.R.T @ self.R)
        R: Matrix = np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, np.float64)
        return OfMetric(self.X, R, self.X @ R.T)

    def apart_under_prior(self) -> Apart:
        """Return the squared distances between points under W0, as a function of rows."""
        return _apart_of(self.L)

    def of_multipliers(self, multipliers: Vector, terms: Terms) -> Spectrum:
        """Return V = (I + L' (sum_t l_t A_t) L)^-1."""
        values, vectors = np.linalg.eigh(symmetric(terms.within(multipliers, self.L)))
        # An indefinite I + S is of no metric, nor near that which is stored.
        return Spectrum(np.where(values > -1.0, 1.0 / np.where(values > -1.0, 1.0 + values, 1.0), TINY), vectors)

    def relative(self, components: Matrix) -> Spectrum:
        """Return V of W = C'C."""
        half = scipy.linalg.solve_triangular(self.R, components.T, trans="T")
        vectors, roots, _ = np.linalg.svd(half)
        return Spectrum(np.maximum(roots**2, TINY), vectors)

    def proven(self, V: Spectrum, w: float, multipliers: Vector, terms: Terms) -> tuple[float, float, float, float]:
        """Return (F, its bound, rounding of F, scale of a gap) of V (d, d).

        The bound is the largest of the dual's at the slopes of the margins and at the multipliers, and that by the gradient.
        """
        a, summed = terms.margins_of_rows(self.L @ V.root)
        value, steep = terms.loss(a)
        slope, conj = terms.dual_point(a, multipliers / w)
        size, trace = V.log_det(), float((V.values - 1.0).sum())
        objective = w * float(value.sum()) + trace - size
        bound = w * float(conj.sum()) + log_det(terms.within(w * slope, self.L))
        y = in_domain(terms, multipliers / w)
        by_multipliers = w * conjugate_sum(terms, y) + log_det(terms.within(w * y, self.L))
        gradient = terms.within(w * steep - multipliers, self.L)
        bound = max(bound, terms.lowest, by_multipliers, objective - gradient_bound(gradient, V.matrix))
        sizes = w * float(np.abs(value).sum() + np.abs(a * slope).sum()) + abs(trace) + abs(size)
        # Margins are sums of products, of which each is known to some last digits; so is each eigenvalue of V.
        rounding = KNOWN * w * float(np.abs(steep) @ summed)
        rounding += KNOWN * len(V.values) * min(1.0, float(np.linalg.norm(V.values - 1.0)) + KNOWN)
        scale = max(abs(objective), abs(bound) if np.isfinite(bound) else 0.0, float(np.finfo(float).tiny))
        return objective, bound, AGREE * sizes + rounding, scale

    def without(
        self, w: float, multipliers: Vector, terms: Terms
    ) -> tuple[tuple[float, float, float, float], Measures]:
        """Return the proof and the distances of the metric of some multipliers; see `verify_held_out.Learned`."""
        V = self.of_multipliers(multipliers, terms)
        B = V.root if self.cut is None else V.root @ self.cut.axes(V.root.T @ self.R)
        return self.proven(V, w, multipliers, terms), _measures(self.L @ B)

    def plain(self) -> Measures:
        """Return Euclidean distances."""
        return _measures(self.X)


def _apart_of(B: Matrix) -> Apart:
    """Return the squared distances (c,) of the rows of B (p, d), as a function of their numbers i (c,) and j (c,)."""

    def apart(i: Rows, j: Rows) -> Matrix:
        found, step = np.empty(len(i)), max(1, PIECE // B.shape[1])
        for lo in range(0, len(i), step):
            found[lo : lo + step] = np.square(B[i[lo : lo + step]] - B[j[lo : lo + step]]).sum(axis=1)
        return found

    return apart


def _measures(B: Matrix) -> Measures:
    """Return the distances of the rows of B (p, d)."""
    squares = np.square(B).sum(axis=1)

    def between(i: Rows, j: Rows) -> Matrix:
        if np.ndim(i) == 0:
            return np.asarray(squares[i] + squares[j] - 2 * (B[j] @ B[i]))
        return _apart_of(B)(i, j)

    def products(i: Rows, j: Rows) -> Matrix:
        return np.stack([np.einsum("kd,kd->k", B[some], B[others]) for some, others in zip(i, j, strict=True)])

    return Measures(between, products, 4 * float(squares.max()))


def _of_prior(W0: Matrix, X: Matrix, prior: str) -> tuple[float, float]:
    """Return (how far W0 is from that of the rows, relative, and the rounding that is allowed)."""
    d = X.shape[1]
    if prior == "identity":
        return float(np.abs(W0 - np.eye(d)).max()), 0.0
    apart = X - X[0]
    apart -= apart.mean(axis=0)
    values, vectors = np.linalg.eigh(apart.T @ apart / (len(X) - 1))
    top = max(float(values[-1]), 0.0)
    varies = values > NEGLIGIBLE * top
    if not varies.any():
        return float(np.abs(W0 - np.eye(d)).max()), 0.0
    least = float(values[varies].min())
    values = np.where(varies, values, least)
    # In units in which the covariance is I: there an error of W0 is what it changes of any distance.
    turned = (vectors * np.sqrt(values)).T @ W0 @ (vectors * np.sqrt(values))
    return float(np.abs(turned - np.eye(d)).max()), min(AGREE + MANY * d * KNOWN * top / least, UNSURE)


def _of_components(stored: Spectrum, V: Spectrum, metrics: OfMetric, multipliers: Vector, terms: Terms) -> Comparison:
    """Compare the metric of the stored components with that of the multipliers, by the estimated rounding of the latter."""
    other = metrics.turned()
    # W of either root, in the units of the first.
    half = scipy.linalg.solve_triangular(metrics.R, other.R.T, trans="T")
    again = half @ other.of_multipliers(multipliers, terms).matrix @ half.T
    rounding = _apart(again, V.matrix) + KNOWN * (float(V.values.max()) / float(V.values.min()))
    # The sum of l_t A_t is known to some last digits of the sizes that are summed up, which may cancel.
    summed = float(np.abs(multipliers) @ terms.margins_of_rows(metrics.L @ V.root)[1])
    rounding += KNOWN * summed
    allowed = min(LEAST_AGREE + MANY * rounding, max(MOST_AGREE, rounding))
    return Comparison("W of the multipliers", 0.0, _apart(stored.matrix, V.matrix), allowed)


def _apart(found: Matrix, wanted: Matrix) -> float:
    """Return the largest difference, relative to the largest entry."""
    return float(np.abs(found - wanted).max(initial=0.0)) / (float(np.abs(wanted).max(initial=0.0)) or 1.0)


def _of_gamma(
    output: Json, w: float, V: Spectrum, multipliers: Vector, metrics: OfMetric, terms: Terms, tol: float, rounding: float
) -> Iterator[Comparison]:  # fmt: skip
    """Compare F, its bound and the gap of one metric; rounding: more of F, if V is not stored."""
    objective, bound, allowed, scale = metrics.proven(V, w, multipliers, terms)
    allowed += rounding
    # A bound may be proven at another step than the last, of which nothing is kept: what is claimed of a solved gamma is tol.
    slack = max(0.0, tol * scale - float(output["gap"])) if output["outcome"] == "solved" else np.inf
    if terms.has_corner and output["outcome"] == "solved":
        beyond = float(max(multipliers.max(initial=0.0), -w - multipliers.min(initial=0.0), 0.0)) / w
        yield Comparison("multipliers outside of [-w, 0]", 0.0, beyond, MOST_AGREE, quiet=True)
    yield Comparison("objective", float(output["objective"]), objective, allowed)
    if np.isfinite(output["gap"]):  # else nothing was proven
        reported, share = float(output["gap"]), float(output["relative_gap"])
        yield Comparison("gap", reported, objective - bound, 2 * allowed + slack, "above")
        yield Comparison("relative gap", share, (objective - bound) / scale, (2 * allowed + slack) / scale, "above")


CUT_LEAST, CUT_MOST, CUT_MANY = 1e-10, 1e-5, 100.0
"""Least and largest relative tolerance, and multiple of the estimated rounding that is allowed."""


@dataclass(frozen=True)
class Cut:
    """Rows X (n, d) about their mean, and how many components are kept of a metric that was learned from them."""

    X: Matrix
    count: int

    @classmethod
    def of(cls, rows: Matrix, count: int | None) -> Cut | None:
        """Return the cut of metrics of the rows (n, d) to `count` components; None for all."""
        if count is None:
            return None
        X = rows - rows[0]
        X -= X.mean(axis=0)
        X /= float(np.abs(X).max()) or 1.0  # no principal axis depends on the scale
        return cls(X, count)

    def axes(self, F: Matrix) -> Matrix:
        """Return the leading principal axes (d, k) of Z = X F'."""
        scale = float(np.abs(F).max()) or 1.0
        return np.asarray(np.linalg.eigh(_gram(self.X, F / scale))[1][:, ::-1][:, : self.count])

    def claims(self, components: Matrix, F: Matrix) -> Iterator[Comparison]:
        """Compare C (k, d) with what they must be for all components F (d, d)."""
        sizes = np.linalg.norm(F, axis=0)
        F, components = F / np.where(sizes > 0, sizes, 1.0), components / np.where(sizes > 0, sizes, 1.0)
        left, roots, right = np.linalg.svd(F)
        inverse = (right.T / np.maximum(roots, np.finfo(float).tiny)) @ left.T
        U = components @ inverse
        X = self.X * (sizes / (float(sizes.max()) or 1.0))
        rounding = KNOWN * float((np.abs(components) @ np.abs(inverse)).max() + (np.abs(F) @ np.abs(inverse)).max())
        apart = float(np.abs(U @ U.T - np.eye(len(U))).max())
        yield Comparison("lengths of the components' axes", 0.0, apart, min(CUT_LEAST + CUT_MANY * rounding, CUT_MOST))
        G = _gram(X, F)
        values = np.maximum(np.linalg.eigvalsh(G)[::-1], 0.0)
        top = float(values[0]) or 1.0
        summed = float((np.abs(F) @ np.linalg.norm(X, axis=0)).max())
        apart = float(np.abs(G @ U.T - U.T * values[: len(U)]).max()) / top
        rounding += KNOWN * summed / top**0.5
        yield Comparison("components beside the rows", 0.0, apart, min(CUT_LEAST + CUT_MANY * rounding, CUT_MOST))


def _gram(X: Matrix, F: Matrix) -> Matrix:
    """Return Z'Z (d, d) of Z = X F'."""
    Z = X @ F.T
    return np.asarray(Z.T @ Z)

"""`dkl verify` of a learned kernel: objective and gap once more, from the data, the constraints and what is stored.

Nothing here comes from the solvers or the problems. With K0 = L L' by eigenvectors, on the rows P that constraints touch,

    F = w sum_t psi(a_t) + tr(L'M L) - log det(I + L'M L),    a_t = tr(K A_t),  K = K0 + K0 M K0,    w = gamma / m, or gamma

for the M that is stored, and the bound is, for l_t = w psi'(a_t) and U = sum_t l_t A_t,

    D = w sum_t (psi(a_t) - a_t psi'(a_t)) + log det(I + L'U L)

which is below F wherever I + L'U L is positive definite; so is 0 where psi is nowhere negative. Of a hinge, whose slope jumps, l are
the stored multipliers, between -w and 0, and D = -sum_t l_t + log det(I + L'U L). At the gammas before the
last the kernel is that of the stored multipliers, of which M = -(I + U K0)^-1 U; the stored M must be this too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.rules import SHARPNESS, width_rule
from dkl.estimators.logdet.model import check_model, kept_kernel, settings_in, stored_laplacian
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.resources import format_bytes
from dkl.runs.logdet import BASIS_SQUARES, MATRIX_SQUARES, VERIFY_SQUARES, verify_held_out
from dkl.runs.logdet.inputs import term_bytes
from dkl.runs.logdet.verify_proof import (
    AGREE,
    KNOWN,
    Terms,
    apart_under,
    inner_of,
    of_inner,
    pivoted_root,
    proven,
    root_of,
    symmetric,
    terms_of,
)
from dkl.runs.recomputed import kernel_matrix, neighbor_graph, widths_apart
from dkl.runs.report import MOST_OUTPUTS, Comparison, named
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows as DataRows
    from dkl.runs.logdet.inputs import LogDetInputs
    from dkl.stores.seals import Json


NEAR = 1e-9
"""Share of a kernel's largest entry by which rounding may reorder squared distances."""
LEAST_AGREE, MOST_AGREE = 1e-10, 1e-6
"""Least and largest relative tolerance of M and of principal coordinates."""
MANY = 100.0
"""Multiple of the estimated rounding that is allowed."""

Matrix = NDArray[np.float64]


def claims(run: RunStore, inputs: LogDetInputs, settings: LogDetRunSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of each gamma's numbers, and of the kernel stored for the last."""
    found, outputs = run.read_arrays("model"), run.report()["outputs"]
    check_model(run, found)
    points, M, basis = found["touched"], found["M"], found["basis"]
    p, b = len(points), len(basis)
    n = inputs.rows.n if settings.kernel in ("laplacian", "precomputed") else 0
    size = 8 * (VERIFY_SQUARES * p**2 + BASIS_SQUARES * b**2 + MATRIX_SQUARES * n**2)
    size += term_bytes(inputs.sizes(settings))
    if size > budget:
        what = f"the kernel of {max(n, b):,} rows does not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(size))
    if len(outputs) != len(found["gammas"]) or len(outputs) != len(settings.gammas):
        raise StoreError("model and report do not fit together", where=str(run.path), got=len(outputs))
    X = inputs.rows.read(0, inputs.rows.n)
    side = inputs.side(X, settings)
    prior, apart = prior_matrix(X, found, settings, kept_kernel(settings_in(run), found))
    yield Comparison("K0 beside the data", 0.0, apart, AGREE)
    at = np.searchsorted(basis, points)
    K0 = np.ascontiguousarray(prior[np.ix_(at, at)])
    terms = terms_of(side, points, apart_under(K0), settings)
    if terms.touched.shape != points.shape or not np.array_equal(terms.touched, points):
        raise StoreError("the stored kernel is not of the rows that the constraints touch", where=f"{run.path}/model")
    if found["multipliers"].shape[1] != terms.count:
        raise StoreError("not a multiplier for each constraint", where=f"{run.path}/model")
    L, codes = root_of(K0), None if inputs.codes is None else inputs.codes[points]
    weights = found["gammas"] / (terms.m if settings.normalize_gamma else 1.0)
    for k, output in enumerate(outputs):
        which = "" if len(outputs) == 1 else f" at gamma {found['gammas'][k]:.6g}"
        is_last = k == len(outputs) - 1
        U = terms.matrix(found["multipliers"][k])
        inner = inner_of(L, U)
        least, exact = of_inner(L, inner)
        if is_last:
            found_change, change, summed = _changes(M, inner, K0, L)
            R = pivoted_root(K0)
            rounding = _apart(_changes(M, inner_of(R, U), K0, R)[1], change)
            # The sum of l_t A_t is known to some last digits of the sizes that are summed up, which may cancel.
            summed += float(np.abs(found["multipliers"][k]) @ terms.sizes(exact)) * _largest_share(exact, K0)
            rounding += KNOWN * summed / (float(np.abs(change).max(initial=0.0)) or 1.0)
            yield Comparison(
                "M of the multipliers", 0.0, min(_apart(M, least), _apart(found_change, change)), _agree(rounding)
            )
        compared = _of_gamma(
            output,
            float(weights[k]),
            M if is_last else least,
            None if is_last else exact,
            found["multipliers"][k],
            K0,
            L,
            terms,
            codes,
            settings.tol,
        )
        yield from named(compared, which, quiet=k < len(outputs) - MOST_OUTPUTS)
    if codes is not None:
        error, allowed = _error(K0, codes)
        yield Comparison("error before", float(run.report()["prior_error"]), error, allowed)
    kernels = verify_held_out.OfKernel(K0, L)
    yield from verify_held_out.claims(run, side, points, kernels, terms, settings, found["gammas"][-1])
    yield from _of_components(prior, at, M, found, settings.center)


def _apart(found: Matrix, wanted: Matrix) -> float:
    """Return the largest difference, relative to the largest entry."""
    return float(np.abs(found - wanted).max(initial=0.0)) / (float(np.abs(wanted).max(initial=0.0)) or 1.0)


def _largest_share(K: Matrix, K0: Matrix) -> float:
    """Return the largest share of K's diagonal in that of K0."""
    D = np.diagonal(K0)
    return float(np.where(D > 0, np.diagonal(K) / np.where(D > 0, D, 1.0), 0.0).max(initial=0.0))


def _agree(rounding: float) -> float:
    """Return what numbers may differ by of which `rounding` is estimated, all relative.

    More than MOST_AGREE is the rounding itself where a kernel has shrunk to what cancels in it: there nothing else is known.
    """
    return min(LEAST_AGREE + MANY * rounding, max(MOST_AGREE, rounding))


def _changes(M: Matrix, inner: Matrix, K0: Matrix, L: Matrix) -> tuple[Matrix, Matrix, float]:
    """Return (K0 M K0, L inner L'), all that a kernel has of M, in units of the roots of K0's diagonal, and the largest of |K0||M||K0|.

    L'M L and `inner` themselves are in units of the roots of K0's eigenvalues, the least of which are rounding: there a kernel
    may be 1e-5 from itself that is 1e-8 from itself in its entries.
    """
    D = np.sqrt(np.maximum(np.diagonal(K0), 0.0))  # not of L, which has rounding where K0 has a row of zeros
    D[D == 0] = 1.0
    rows, roots = K0 / D[:, None], L / D[:, None]
    found = rows @ M @ rows.T
    np.abs(rows, out=rows)
    return found, roots @ inner @ roots.T, float((rows @ np.abs(M) @ rows.T).max(initial=0.0))


def _of_components(prior: Matrix, at: NDArray[np.intp], M: Matrix, found: Json, center: bool) -> Iterator[Comparison]:
    """Compare coordinates Y of the basis by stored weights: K Y = Y (Y'Y), with K's largest eigenvalues.
    center: K is taken about its mean."""
    K = prior + prior[:, at] @ M @ prior[at]
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean() if center else K
    Y = prior @ found["weights"] + prior[:, at] @ found["weights_at_points"] - found["offset"]
    known, k = Y.T @ Y, Y.shape[1]
    values = np.linalg.eigvalsh(0.5 * (K + K.T))[::-1]
    top = max(float(values[0]), float(np.finfo(float).tiny))
    summed = np.abs(prior) @ np.abs(found["weights"]) + np.abs(prior[:, at]) @ np.abs(found["weights_at_points"])
    of_kernel = np.abs(prior) + np.abs(prior[:, at]) @ np.abs(M) @ np.abs(prior[at])
    # Rounding of a sum of n terms grows with the root of n, at least (Higham & Mary, SIAM J. Sci. Comput. 41, 2019).
    agree = _agree(KNOWN * len(prior) ** 0.5 * float(summed.max() / top**0.5 + of_kernel.max() / top))
    apart = float(np.abs(K @ Y - Y @ known).max()) / top**1.5
    yield Comparison("components", 0.0, apart, agree)
    yield Comparison("sum of components' eigenvalues", float(np.trace(known)), float(values[:k].sum()), agree * k * top)
    if "coordinates" in found:
        stored = found["coordinates"][found["basis"]]
        yield Comparison("coordinates", 0.0, float(np.abs(stored - Y).max()) / top**0.5, agree)


def _of_gamma(
    output: Json,
    w: float,
    M: Matrix,
    exact: Matrix | None,
    multipliers: Matrix,
    K0: Matrix,
    L: Matrix,
    terms: Terms,
    codes: NDArray | None,
    tol: float,
) -> Iterator[Comparison]:
    """Compare F, its bound and the gap of one kernel; exact: with another rounding, if M is not stored."""
    K = K0 + K0 @ M @ K0
    objective, bound, allowed, scale = proven(K, w, M, multipliers, L, terms)
    if exact is not None:
        allowed += abs(objective - proven(exact, w, M, multipliers, L, terms)[0])
    # A bound may be proven at another step than the last, of which nothing is kept: what is claimed of a solved gamma is tol.
    slack = max(0.0, tol * scale - float(output["gap"])) if output["outcome"] == "solved" else np.inf
    if terms.has_corner and output["outcome"] == "solved":  # else they may be of a smooth neighbor of the hinge
        # A constraint that no kernel sees, as of equal rows, has a multiplier that nothing else depends on.
        beyond = float(max(multipliers.max(initial=0.0), -w - multipliers.min(initial=0.0), 0.0)) / w
        yield Comparison("multipliers outside of [-w, 0]", 0.0, beyond, MOST_AGREE, quiet=True)
    yield Comparison("objective", float(output["objective"]), objective, allowed)
    if np.isfinite(output["gap"]):  # else nothing was proven
        yield Comparison("gap", float(output["gap"]), objective - bound, 2 * allowed + slack, "above")
        yield Comparison(
            "relative gap",
            float(output["relative_gap"]),
            (objective - bound) / scale,
            (2 * allowed + slack) / scale,
            "above",
        )
    if codes is not None:
        yield Comparison("error", float(output["error"]), *_error(K, codes))


def _error(K: Matrix, codes: NDArray[np.int64]) -> tuple[float, float]:
    """Return the share of rows whose nearest other is of another class, and how far rounding may move it.

    That is half a row, and the share of rows of which the nearest of their own class and of another are equally near but for rounding.
    """
    wrong = unsure = 0
    rounding = NEAR * float(np.abs(K).max(initial=0.0))
    for i, row in enumerate(K):
        distances = np.diagonal(K) - 2 * row
        distances[i] = np.inf
        is_own = codes == codes[i]
        own, other = (float(distances[chosen].min(initial=np.inf)) for chosen in (is_own, ~is_own))
        wrong += codes[int(np.argmin(distances))] != codes[i]
        unsure += bool(abs(own - other) <= rounding)
    return wrong / len(K), (unsure + 0.5) / len(K)


NEGLIGIBLE = 1e-10
"""Weight of an edge, over the root of its ends' degrees' product, up to which it joins no components."""


def prior_matrix(X: DataRows, found: Json, settings: LogDetRunSettings, kernel: Any) -> tuple[Matrix, float]:
    """Return (K0 (b, b) at the basis, how far what is stored of K0 is from the data's, relative).

    X: all rows (n, d), or the matrix (n, n); kernel: as `kernel_matrix` takes it.
    """
    basis = found["basis"]
    if settings.kernel == "precomputed":
        apart = float(np.abs(found["prior"] - X).max() / max(float(np.abs(X).max()), np.finfo(float).tiny))
        return symmetric(np.asarray(X[np.ix_(basis, basis)], np.float64)), apart
    if settings.kernel == "laplacian":
        K0, apart = _of_graph(X, found, settings)
        return K0[np.ix_(basis, basis)], apart
    rows = X[basis]
    apart = float(abs(_stored_rows(found) - rows).max())
    if kernel.gamma is not None and "gamma" not in settings.kernel_params:
        apart = max(apart, abs(kernel.gamma * X.shape[1] * _variance(X) - 1.0))
    return symmetric(kernel_matrix(kernel, rows, rows)), apart


def _of_graph(X: DataRows, found: Json, settings: LogDetRunSettings) -> tuple[Matrix, float]:
    """Return (L^+ = (L + N N')^-1 - N N', how far stored parts are off), N the null space of L.
    N has one vector a component; edges of more than NEGLIGIBLE weight make components."""
    n = X.shape[0]
    sigma = width_rule(settings.sigma or "auto", "local")
    graph = neighbor_graph(X, settings.n_neighbors, sigma, "unnormalized", sharpness=SHARPNESS, warns_of_cuts=False)
    stored = stored_laplacian(found, "model/laplacian")
    largest = max(float(abs(graph.laplacian).max()), np.finfo(float).tiny)
    apart = float(abs(stored - graph.laplacian).max() / largest) + float(abs(_stored_rows(found) - X).max())
    apart += widths_apart(found["widths"], graph.similarity.widths)
    edges, degree = sp.coo_array(sp.triu(graph.laplacian, 1)), graph.laplacian.diagonal()
    ends, weights = np.stack(edges.coords), -edges.data
    strong = weights > NEGLIGIBLE * np.sqrt(degree[ends[0]] * degree[ends[1]])
    count, labels = connected_components(
        sp.coo_array((weights[strong], tuple(ends[:, strong])), shape=(n, n)), directed=False
    )
    within = labels[ends[0]] == labels[ends[1]]
    W = sp.coo_array((weights[within], tuple(ends[:, within])), shape=(n, n))
    W = sp.csr_array(W + W.T)
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = np.sqrt(np.where(degree > 0, degree, 1.0)) if settings.laplacian != "unnormalized" else np.ones(n)
    N = np.zeros((n, count))
    N[np.arange(n), labels] = root
    N /= np.linalg.norm(N, axis=0)
    L, projection = (sp.diags_array(degree) - W).toarray() / np.outer(root, root), N @ N.T
    return symmetric(np.linalg.inv(L + projection) - projection), apart


def _stored_rows(found: Json) -> DataRows:
    if "points" in found:
        return found["points"]
    parts = (found["points_data"], found["points_indices"], found["points_indptr"])
    return sp.csr_array(parts, shape=tuple(found["points_shape"]))


def _variance(X: DataRows) -> float:
    """Return the variance of all entries of a dense or sparse matrix."""
    if not sp.issparse(X):
        return float(np.var(X, dtype=np.float64))
    count = X.shape[0] * X.shape[1]
    mean = float(X.data.astype(float).sum()) / count
    return float(((X.data.astype(float) - mean) ** 2).sum() + (count - X.nnz) * mean**2) / count

"""A linear objective over the psd cone under sparse linear constraints, as of hard MVU and PCP (Wu et al. 2009, (1)-(9)).

    minimize over K psd (n, n)   <C, K>   where   <A_s, K> = b_s, or <= b_s where s is an upper bound, s = 1 .. p
    maximize over y (p,)         b'y      where   S(y) = C - sum_s y_s A_s is psd, y_s <= 0 of upper bounds

For any y with y_s <= 0 of upper bounds, and T at least the trace of every feasible K,

    <C, K> >= b'y + min(0, low) T      for all feasible K, low the least eigenvalue of S(y),

so that no y has to be feasible exactly. Where tr(K) is to grow (C = -I) y / (1 + low) is feasible too, if low > -1. And if
b'y + min(0, low) T > 0 with 0 in the place of C, no K is feasible.

Of a centered problem K 1 = 0 is asked for too: C and each A_s have the constant vector as an eigenvector, and eigenvalues are those of
the others.

Facial reduction of hard MVU finds the face of the psd cone that cliques of rows with known distances leave (Krislock & Wolkowicz 2010).
Where all distances of c rows are set, so is their centered Gram matrix, of rank d, the dimension of their simplex. If d < c - 1, every
feasible K has Z'K Z = 0 of the vectors Z (c, c - 1 - d) with mean 0 that this matrix maps to 0, and so K = U V U', V psd (m, m), where U
(n, m) spans what is orthogonal to all such Z, and to the constant vector. Without it no feasible K is positive definite, and multipliers
grow without bound; on the face that cliques leave they need not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components, dijkstra

from dkl.errors import InputError
from dkl.problems.qsdp import checks

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
SMALL = 1e-3
"""Least share of the largest |<C, K>| of that trace that a gap is relative to: an objective may be 0, of which no gap is small."""


@dataclass(frozen=True)
class SDPCertificate:
    """Certificate of K and a dual y.

    objective       <C, K>
    bound           no feasible K has less: b'y, less what y lacks to be feasible
    gap             objective - bound; negative where K gains by not being feasible
    relative_gap    |gap| / max(|objective|, |bound|, SMALL max|C| tr(K))
    infeasibility   |A(K) - b| / |b|, of upper bounds what is above them
    min_eigenvalue  of S(y); of a centered problem, of vectors whose mean is 0
    """

    objective: float
    bound: float
    gap: float
    relative_gap: float
    infeasibility: float
    min_eigenvalue: float

    @property
    def error(self) -> float:
        """Return the larger of relative gap and infeasibility."""
        return float(np.max([self.relative_gap, self.infeasibility]))


@dataclass(frozen=True)
class LinearSDP:
    """C, the constraints by the distinct entries (i, j), i <= j, that they read, and b.

    C (n, n) sparse and symmetric; i, j (e,); forms (p, e): <A_s, K> = sum_e forms_se K_ij of entry e, so that an entry off the
    diagonal counts twice its A_s; b (p,); is_upper (p,): whether b_s is an upper bound; trace: T.
    """

    C: sparse.csr_array = field(repr=False)
    i: Indices = field(repr=False)
    j: Indices = field(repr=False)
    forms: sparse.csr_array = field(repr=False)
    b: Array = field(repr=False)
    is_upper: NDArray[np.bool_] = field(repr=False)
    trace: float
    is_centered: bool = False

    @classmethod
    def of_terms(
        cls,
        C: sparse.csr_array,
        terms: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike],
        b: Array,
        is_upper: NDArray[np.bool_],
        trace: float,
        *,
        is_centered: bool = False,
    ) -> LinearSDP:
        """Build the problem from terms (s, i, j, coefficient): <A_s, K> is the sum of coefficient K_ij of the terms of s."""
        n = C.shape[0]
        s, first, second, coefficients = (np.asarray(part).ravel() for part in terms)
        low, high = np.minimum(first, second).astype(np.int64), np.maximum(first, second).astype(np.int64)
        keys, entry = np.unique(low * n + high, return_inverse=True)
        forms = sparse.csr_array((coefficients.astype(np.float64), (s, entry)), shape=(len(b), len(keys)))
        return cls(C, keys // n, keys % n, forms, b, is_upper, float(trace), is_centered)

    @classmethod
    def of_matrices(
        cls,
        C: object,
        matrices: Sequence[object],
        b: object,
        *,
        upper: object = None,
        trace: float | None = None,
    ) -> LinearSDP:
        """Build the problem from symmetric matrices C and A_s (n, n), dense or sparse, and b (p,).

        upper (p,): whether b_s is an upper bound, by default none is. trace: a number that no feasible K's trace exceeds; None: by the
        constraints, which must then set or bound each diagonal entry by itself. Raises InputError for anything else.
        """
        cost = _symmetric(C, "C", None)
        n, p = cost.shape[0], len(matrices)
        targets = checks.numbers(b, "b", f"({p},) numbers, one a matrix", 1)
        if len(targets) != p:
            raise InputError("not one a matrix", where="b", got=f"shape {targets.shape}", wanted=f"({p},) numbers")
        is_upper = np.zeros(p, bool) if upper is None else np.asarray(upper)
        if is_upper.shape != (p,) or is_upper.dtype != bool:
            got = f"shape {is_upper.shape}, dtype {is_upper.dtype}"
            raise InputError("not one a matrix", where="upper", got=got, wanted=f"({p},) booleans")
        triangles = [sparse.triu(_symmetric(A, f"A[{s}]", n), format="coo") for s, A in enumerate(matrices)]
        s = np.repeat(np.arange(p), [one.nnz for one in triangles])
        i, j, values = (
            np.concatenate([getattr(one, name) for one in triangles] or [np.zeros(0)])
            for name in ("row", "col", "data")
        )
        # An entry above the diagonal counts for its mirror image too.
        coefficients = np.where(i == j, values, 2.0 * values)
        found = cls.of_terms(cost, (s, i, j, coefficients), targets, is_upper, np.inf)
        return replace(found, trace=found.diagonal_trace() if trace is None else checks.positive(trace, "trace"))

    @property
    def n(self) -> int:
        """Return the number of rows of K."""
        return int(self.C.shape[0])

    @property
    def p(self) -> int:
        """Return the number of constraints."""
        return len(self.b)

    @cached_property
    def is_variance(self) -> bool:
        """Return whether C = -I: tr(K) is to grow."""
        return bool(abs(self.C + sparse.eye_array(self.n)).max() == 0.0)

    def diagonal_trace(self) -> float:
        """Return the bound on the trace by constraints on single diagonal entries; InputError unless each entry has one."""
        each = np.full(self.n, np.inf)
        alone = np.flatnonzero(np.diff(self.forms.indptr) == 1)
        entry, size = self.forms.indices[self.forms.indptr[alone]], self.forms.data[self.forms.indptr[alone]]
        # size K_ii <= b bounds K_ii from above for size > 0 alone; an equation does so for either sign.
        is_bound = (self.i[entry] == self.j[entry]) & ((size > 0) | ((size < 0) & ~self.is_upper[alone]))
        np.minimum.at(each, self.i[entry[is_bound]], self.b[alone[is_bound]] / size[is_bound])
        if not np.isfinite(each).all():
            first = int(np.flatnonzero(~np.isfinite(each))[0])
            raise InputError(
                "no bound on the trace of K", where="constraints", got=f"none that bounds K[{first}, {first}] by itself",
                wanted="a diagonal that is set or bounded, or trace=",
                remedy="pass trace=, a number that the trace of no such K exceeds",
            )  # fmt: skip
        return float(each.sum())

    @cached_property
    def _pattern(self) -> tuple[Indices, Indices, Array, Indices, Indices]:
        """Return (indptr, indices, C's values) of the pattern of C and all A_s, and the places of entries (i, j) and (j, i)."""
        n, C = self.n, sparse.coo_array(self.C)
        row, column = (np.asarray(one, np.int64) for one in C.coords)
        above, below = self.i * n + self.j, self.j * n + self.i
        keys = np.unique(np.concatenate([row * n + column, above, below]))
        values = np.zeros(len(keys))
        np.add.at(values, np.searchsorted(keys, row * n + column), C.data)
        indptr = np.searchsorted(keys // n, np.arange(n + 1))
        return indptr, keys % n, values, np.searchsorted(keys, above), np.searchsorted(keys, below)

    def slack(self, y: Array, *, with_cost: bool = True) -> sparse.csr_array:
        """Return S(y) = C - sum_s y_s A_s; without C where `with_cost` is False."""
        indptr, indices, cost, above, below = self._pattern
        half = 0.5 * (self.forms.T @ y)
        values = cost.copy() if with_cost else np.zeros_like(cost)
        values[above] -= half
        values[below] -= half
        return sparse.csr_array((values, indices, indptr), shape=(self.n, self.n))

    def pattern(self) -> sparse.csr_array:
        """Return I plus the Laplacian of the graph that the pattern of C and all A_s makes."""
        S = self.slack(np.zeros(self.p))
        ones = sparse.csr_array((np.ones(S.nnz), S.indices, S.indptr), shape=S.shape)
        return sparse.csr_array(sparse.diags_array(np.asarray(ones.sum(axis=1)).ravel() + 1.0) - ones)

    def images(self, R: Array) -> Array:
        """Return A(R R') (p,) of a factor R (n, r)."""
        return np.asarray(self.forms @ np.einsum("er,er->e", R[self.i], R[self.j]))

    def crossed(self, R: Array, D: Array) -> Array:
        """Return A(R D' + D R') (p,)."""
        found = np.einsum("er,er->e", R[self.i], D[self.j])
        found += np.einsum("er,er->e", D[self.i], R[self.j])
        return np.asarray(self.forms @ found)

    def rows_of(self, R: Array) -> tuple[Indices, Indices, Array]:
        """Return (row, s, values (., r)), by whose sums over equal (row, s) the nonzero rows of all A_s R are given."""
        terms = sparse.coo_array(self.forms)
        s, entry = (np.asarray(one, np.int64) for one in terms.coords)
        i, j, half = self.i[entry], self.j[entry], 0.5 * terms.data[:, None]
        return np.concatenate([i, j]), np.concatenate([s, s]), np.concatenate([half * R[j], half * R[i]])

    def projected(self, R: Array) -> Array:
        """Return R (n, r) less its mean where the problem is centered."""
        return R - R.mean(axis=0) if self.is_centered else R

    def violation(self, images: Array) -> Array:
        """Return A(K) - b (p,), of upper bounds what is above them."""
        apart = images - self.b
        return np.where(self.is_upper, np.maximum(apart, 0.0), apart)

    def infeasibility(self, images: Array) -> float:
        """Return |A(K) - b| / |b|, or the size itself of b = 0."""
        size = float(np.linalg.norm(self.b))
        return float(np.linalg.norm(self.violation(images))) / (size or 1.0)

    def certify(self, R: Array, y: Array, lowest: float) -> SDPCertificate:
        """Return the certificate of R R' and y, `lowest` at most the least eigenvalue of S(y)."""
        objective, value = float(np.sum((self.C @ R) * R)), float(self.b @ y)
        bound = value + (float(lowest) * self.trace if lowest < 0 else 0.0)
        if self.is_variance and lowest > -1.0:
            # (S(y) - low I) / (1 + low) is S(y / (1 + low)): that y is feasible, and needs no bound on the trace.
            bound = max(bound, value / (1.0 + float(lowest)))
        largest = float(abs(self.C).max()) * float(np.sum(R * R))
        size, gap = max(abs(objective), abs(bound), SMALL * largest), objective - bound
        relative = abs(gap) / size if np.isfinite(gap) and gap else abs(gap)
        return SDPCertificate(objective, bound, gap, relative, self.infeasibility(self.images(R)), float(lowest))

    def in_units(self) -> tuple[LinearSDP, float, float]:
        """Return (the problem in K / k and y / c, k, c), so that the mean |b| and the largest |C| are 1."""
        k = float(np.abs(self.b).mean()) if self.b.any() else 1.0
        c = float(abs(self.C).max()) or 1.0
        return replace(self, C=self.C / c, b=self.b / k, trace=self.trace / k), k, c


def unfolding(n: int, edges: object, squared: object, *, is_upper: bool = False) -> LinearSDP:
    """Return hard MVU (1)-(4): max tr(K), K 1 = 0, |r_i - r_j|^2 = squared (e,) of edges (e, 2) between n rows, or at most so.

    InputError for edges or lengths that are not valid, and for a graph in components, whose trace has no bound.
    """
    pairs = checks.edges(edges, n)
    lengths = checks.edge_lengths(squared, len(pairs))
    i, j = pairs.T
    s = np.arange(len(pairs))
    # SciPy's first versions with csr_array search graphs of 32-bit indices alone.
    graph = sparse.csr_array((np.sqrt(lengths), (i.astype(np.int32), j.astype(np.int32))), shape=(n, n))
    # Stored zeros are edges here, as rows may be equal.
    distances = dijkstra(graph, directed=False, indices=0)
    if not np.isfinite(distances).all():
        apart = int(np.count_nonzero(~np.isfinite(distances)))
        raise InputError(
            "a graph in components, which could go as far apart as they like", where="edges",
            got=f"{apart:,} of {n:,} rows that no path joins to row 0", wanted="a connected graph",
            remedy="join its components, or unfold each by itself",
        )  # fmt: skip
    terms = (np.r_[s, s, s], np.r_[i, j, i], np.r_[i, j, j], np.r_[np.ones(2 * len(s)), np.full(len(s), -2.0)])
    # Around any point, and so around the mean, no row is farther than its path is long.
    trace = float(distances @ distances)
    cost = sparse.csr_array(-sparse.eye_array(n))
    return LinearSDP.of_terms(cost, terms, lengths, np.full(len(s), is_upper), trace, is_centered=True)


def propagation(laplacian: sparse.csr_array, must_link: object, cannot_link: object) -> tuple[LinearSDP, Indices]:
    """Return hard PCP (5)-(9): min <L, K>, K_ii = 1, K_ij = 1 of must-links, 0 of cannot-links; and each row's row of K (n,).

    K_ij = K_ii = K_jj says that rows i and j are the same point, so that must-linked rows share one row of K, and the rest has K = I in
    the interior: no multiplier grows without bound. laplacian (n, n), symmetric. Raises InputError for a cannot-link whose ends the
    must-links join.
    """
    n = laplacian.shape[0]
    together, apart = (
        checks.ends(pairs, n, where) for pairs, where in ((must_link, "must_link"), (cannot_link, "cannot_link"))
    )
    links = sparse.csr_array((np.ones(len(together)), (together[:, 0], together[:, 1])), shape=(n, n))
    m, labels = connected_components(links, directed=False)
    c, d = labels[apart].astype(np.int64).reshape(-1, 2).T
    if (c == d).any():
        first = apart[int(np.flatnonzero(c == d)[0])]
        raise InputError(
            "must-links join the ends of a cannot-link", where="cannot_link", got=f"rows {first[0]} and {first[1]}",
            wanted="pairs that one kernel can meet", remedy='leave out wrong pairs: contradictions="drop"',
        )  # fmt: skip
    # A pair of rows of K counts once.
    c, d = np.divmod(np.unique(np.minimum(c, d) * m + np.maximum(c, d)), m)
    joined = sparse.csr_array((np.ones(n), (np.arange(n), labels)), shape=(n, m))
    cost = sparse.csr_array(joined.T @ (laplacian @ joined))
    own, b = np.arange(m), np.r_[np.ones(m), np.zeros(len(c))]
    terms = (np.arange(len(b)), np.r_[own, c], np.r_[own, d], np.ones(len(b)))
    return LinearSDP.of_terms(cost, terms, b, np.zeros(len(b), bool), float(m)), labels.astype(np.int64)


def _symmetric(matrix: object, where: str, n: int | None) -> sparse.csr_array:
    """Return a dense or sparse matrix as a symmetric csr array (n, n); raises InputError."""
    if not sparse.issparse(matrix):
        return sparse.csr_array(checks.symmetric(matrix, where, n))
    found = sparse.csr_array(matrix, dtype=np.float64)
    if found.shape[0] != found.shape[1] or n not in (None, found.shape[0]):
        wanted = "a symmetric matrix" if n is None else f"a symmetric ({n}, {n}) matrix"
        raise InputError("of another size", where=where, got=f"shape {found.shape}", wanted=wanted)
    if not np.isfinite(found.data).all():
        raise InputError("not finite", where=where, wanted="finite numbers", remedy="correct it")
    if abs(found - found.T).max() > checks.ASYMMETRY * abs(found).max():
        raise InputError(
            "not symmetric", where=where, wanted="a symmetric matrix", remedy=f"pass ({where} + {where}.T) / 2"
        )
    return found


FLAT, ZERO = 1e-12, 1e-10
"""Eigenvalues of a clique's Gram matrix, relative to the largest, and of the sum of projections, up to which they are 0."""
MOST_CLIQUES = 50
"""Cliques a row, at most: fewer leave a larger face, on which K is sought all the same."""


def face_of_cliques(n: int, edges: NDArray[np.integer], squared: Array) -> Array:
    """Return U (n, m), orthonormal: each K that has these squared distances (e,) along edges (e, 2), and K 1 = 0, is U V U'."""
    places = {(int(i), int(j)): s for s, (i, j) in enumerate(np.sort(edges, axis=1))}
    exposed = np.full((n, n), 1.0 / n)
    for clique in cliques_of(n, edges):
        c = len(clique)
        apart = np.zeros((c, c))
        for a in range(c):
            for b in range(a):
                apart[a, b] = apart[b, a] = squared[places[clique[b], clique[a]]]
        centered = apart - apart.mean(axis=0)
        centered = -0.5 * (centered - centered.mean(axis=1)[:, None])
        values, vectors = np.linalg.eigh(0.5 * (centered + centered.T))
        # The constant vector is moved to the end; the others of eigenvalue 0 are Z.
        flat = vectors[:, values <= FLAT * max(float(values[-1]), 0.0)]
        flat = flat - flat.mean(axis=0)
        left, sizes, _ = np.linalg.svd(flat, full_matrices=False)
        Z = left[:, sizes > 0.5]
        exposed[np.ix_(clique, clique)] += Z @ Z.T
    values, vectors = np.linalg.eigh(exposed)
    return np.ascontiguousarray(vectors[:, values <= ZERO])


def cliques_of(n: int, edges: NDArray[np.integer]) -> list[list[int]]:
    """Return the maximal cliques that the face is made from, each with its rows rising."""
    return list(islice(_cliques(n, edges), MOST_CLIQUES * n))


def _cliques(n: int, edges: NDArray[np.integer]) -> Iterator[list[int]]:
    """Yield the maximal cliques of two rows or more, each with its rows rising (Bron & Kerbosch 1973, with pivots)."""
    near: list[set[int]] = [set() for _ in range(n)]
    for i, j in edges.tolist():
        near[i].add(j)
        near[j].add(i)

    def grown(clique: list[int], more: set[int], done: set[int]) -> Iterator[list[int]]:
        if not more and not done:
            if len(clique) > 1:
                yield sorted(clique)
            return
        pivot = max(sorted(more | done), key=lambda row: len(near[row] & more))
        for row in sorted(more - near[pivot]):
            yield from grown([*clique, row], more & near[row], done & near[row])
            more = more - {row}
            done = done | {row}

    for row in range(n):
        yield from grown([row], {k for k in near[row] if k > row}, {k for k in near[row] if k < row})

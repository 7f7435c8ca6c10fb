"""Trace of K to grow under distances that hold, on a face K = U V U', by a primal-dual interior point with a dense Schur complement.

    minimize over V psd (m, m)   -tr(V)   where   g_s'V g_s = b_s, g_s = U_i - U_j of edge s        S(y) = -I - sum_s y_s g_s g_s'

The HKM direction with Mehrotra's predictor and corrector (Helmberg et al. 1996). Constraints have rank one, so that the Schur complement
is the product, entry by entry, of G V G' and G S^-1 G' (p, p): p^2 m operations, where codes for any constraints take far more. Constraints
that depend on others on the face are left out by a Cholesky factor with pivots. y is feasible at each step: b'y is a bound.

Steps are taken in coordinates in which S = I: V = T W T', S = T^-T T^-1, where W is about mu I, mu = <V, S> / m. The direction is the same
in any coordinates, its rounding is not. Where neighbors are nearly rigid S has eigenvalues of 1e7 next to some near 0, and V, V S being
about mu I, some of mu / 1e7 next to those of the kernel: 1e-15 of its largest, which V itself holds with no digit at all. That S(y) is psd
is proven there too, of T'S(y)T: of S(y) no more is known of an eigenvalue near 0 than what rounding leaves of its largest.

An end is polished: V = R R' is moved by Gauss-Newton's steps to where distances hold, as multipliers may be large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dkl.resources import one_blas_thread
from dkl.solvers.qsdp.augmented import CertifiedFactor, LinearSDPSolution
from dkl.solvers.qsdp.augmented_steps import ConstrainedCone, reduced
from dkl.solvers.qsdp.interface import check_numbers
from dkl.solvers.watch import Row, Stall, Watch, verdict

Array = NDArray[np.float64]
DEPENDENT = 1e-11
"""Pivot, of 1, below which a constraint depends on those before it."""
NO_LENGTH = 1e-20
"""Share of the largest |g_s|^2 up to which an edge has no length on the face."""
FIRST = 10.0
"""Trace of the first V, in bounds of the trace, and size of the first S."""
IDLE = 10
"""Steps without a new least error, at most."""
NEAR = 30.0
"""Complementarity and infeasibility, in tol, from which on points are polished: large multipliers make a gap of little of the latter."""
POLISHES, REFINEMENTS = 5, 3
"""Most Gauss-Newton steps of a polish, and most solutions of a direction's system."""
CUTS = (1e-12, 1e-9, 1e-7)
"""Eigenvalues, relative to the largest, below which a polished point has none."""


MOST_TERMS = 4000
"""Constraints up to which the method is worth taking: its steps take their third power."""


@dataclass(frozen=True)
class PathState:
    """Checkpoint state after a step; resuming from it is bit-identical.

    T, W (m, m) and y (q,) of the path, in units in which |b| is about 1; best (n, r) and best_dual (p,): of the least error so far, `low`
    its least eigenvalue; near, nearest: what steps are compared by; idle: steps without progress.
    """

    T: Annotated[Array, "face", "face"] = field(repr=False)
    W: Annotated[Array, "face", "face"] = field(repr=False)
    y: Annotated[Array, "kept edge"] = field(repr=False)
    best: Annotated[Array, "sample", "best column"] = field(repr=False)
    best_dual: Annotated[Array, "edge"] = field(repr=False)
    low: float
    near: float
    nearest: float
    iteration: int
    idle: int


def interior_bytes(p: int, n: int) -> int:
    """Return the bytes of matrices of p constraints on n rows."""
    return 8 * (6 * p * p + 6 * p * n + 20 * n * n)


@one_blas_thread()  # the same bits on any machine
def solve_interior(
    problem: ConstrainedCone,
    U: Array,
    edges: NDArray[np.integer],
    *,
    tol: float = 1e-6,
    max_iter: int = 200,
    start: Array | None = None,
    watch: Watch | None = None,
    resume_from: PathState | None = None,
    on_state: Callable[[PathState], object] | None = None,
) -> LinearSDPSolution:
    """Solve hard MVU, of distances of edges (p, 2), on the face of U (n, m) until gap and infeasibility are at most `tol`.

    start (n, k): a factor that meets the constraints, which is the answer where it is the only one. The certificate is of the problem on
    the face: its least eigenvalue is that of U'S(y)U. Rows of the history: as those of `solve_augmented`; newton: steps.
    on_state: called with the state after each row; its arrays are not written to. resume_from: such a state, of which the row was recorded.
    """
    check_numbers(tol=tol, max_iter=max_iter)
    watch = Watch() if watch is None else watch
    path, iteration, stall = _Path(problem, U, edges, tol, start), 0, Stall(IDLE)
    if resume_from is None:
        stop_reason = watch.record(path.row(0))
    else:
        path.restore(resume_from)
        iteration, stall.idle, stop_reason = resume_from.iteration, resume_from.idle, watch.outcome
    while True:
        if on_state is not None:
            on_state(path.state(iteration, stall.idle))
        at_limit, is_solved = iteration >= max_iter, path.best.error <= tol
        outcome = verdict(stop_reason, solved=is_solved, at_limit=at_limit, stalled=stall.is_passed or path.is_broken)
        if outcome is not None:
            best = path.best
            return LinearSDPSolution(
                outcome, best.factor, best.dual, best.certificate, iteration, iteration, U.shape[1]
            )
        iteration += 1
        stall.check(path.advance())
        stop_reason = watch.record(path.row(iteration))


class _Path:
    """Steps of the interior point, in units in which |b| is about 1."""

    def __init__(
        self, problem: ConstrainedCone, U: Array, edges: NDArray[np.integer], tol: float, start: Array | None
    ) -> None:
        self.problem, self.U, self.tol, self.is_broken = problem, U, tol, False
        scaled, self.k, _ = problem.in_units()
        all_G, m = U[edges[:, 0]] - U[edges[:, 1]], U.shape[1]
        self.kept = _independent(all_G)
        self.G, self.b = all_G[self.kept], scaled.b[self.kept]
        self.size = float(np.linalg.norm(self.b))
        # The path starts far inside both cones; y is feasible, V not yet.
        lowest = float(linalg.eigvalsh(self.G.T @ self.G, subset_by_index=[0, 0])[0])
        # S = (FIRST / lowest) G'G - I is at least FIRST - 1.
        self.y = np.full(len(self.b), -FIRST / lowest)
        values, vectors = np.linalg.eigh(self._slack(self.y))
        # V is a multiple of I.
        self.T = np.ascontiguousarray(vectors / np.sqrt(values))
        self.W = np.diag(values * (FIRST * scaled.trace / m))
        self.near = self.nearest = np.inf
        self.start = None if start is None else U @ (U.T @ start)
        self.last = self.best = self._proven()

    def state(self, iteration: int, idle: int) -> PathState:
        """Return the state to resume from."""
        best = self.best
        return PathState(
            self.T, self.W, self.y, best.factor, best.dual, best.low, self.near, self.nearest, iteration, idle
        )  # fmt: skip

    def restore(self, state: PathState) -> None:
        """Go back to a state."""
        self.T, self.W, self.y, self.near, self.nearest = state.T, state.W, state.y, state.near, state.nearest
        proof = self.problem.certify(state.best, state.best_dual, state.low)
        self.last = self.best = CertifiedFactor(state.best, state.best_dual, proof, state.low)

    def row(self, iteration: int) -> Row:
        """Return the row of the last step."""
        return self.last.row(iteration, self.last.factor.shape[1], iteration)

    def advance(self) -> bool:
        """Do a step; return whether it came nearer."""
        try:
            self._step()
        except linalg.LinAlgError:
            self.is_broken = True  # rounding ends all progress
            return False
        trace = float(np.sum((self.T @ self.W) * self.T))
        gap = float(np.trace(self.W)) / max(trace, abs(float(self.b @ self.y)))
        self.near = max(gap, float(np.linalg.norm(self.b - _squares(self.G @ self.T, self.W))) / self.size)
        is_nearer, self.nearest = self.near < 0.98 * self.nearest, min(self.near, self.nearest)
        self.last = self._proven()
        if self.last.error < self.best.error:
            self.best = self.last
        return is_nearer or self.last is self.best

    def _slack(self, y: Array) -> Array:
        """Return -I - sum_s y_s g_s g_s' (m, m)."""
        return -np.eye(self.G.shape[1]) - (self.G.T * y) @ self.G

    def _step(self) -> None:
        H, T, W, y = self.G @ self.T, self.T, self.W, self.y
        m = len(W)
        # What rounding has left between S = I and y: each direction takes it back.
        drift = -(T.T @ T) - (H.T * y) @ H - np.eye(m)
        of_W = linalg.cholesky(W, lower=True, check_finite=False)
        # The Schur complement of rank-one constraints: (g_s'V g_t) (g_s'S^-1 g_t).
        M = ((H @ W) @ H.T) * (H @ H.T)
        factor = _factored(M)
        lacking, mu, drift_image = self.b - _squares(H, W), float(np.trace(W)) / m, W @ drift

        def direction(target: float, second: Array | None) -> tuple[Array, Array, Array]:
            """Return (dW, dy, dS) to W S = target I, S = I, `second`: what the product of the last directions adds."""
            fixed = target * np.eye(m) - W - (drift_image if second is None else drift_image + second)
            fixed = 0.5 * (fixed + fixed.T)
            dy, dW = np.zeros(len(y)), fixed
            # Refined by what distances still lack, as M is nearly singular towards the end of the path.
            for step in range(REFINEMENTS):
                left = lacking - _squares(H, dW)
                more = linalg.cho_solve((factor, True), left, check_finite=False)
                turn = W @ ((H.T * more) @ H)
                further = dW + 0.5 * (turn + turn.T)
                if step and np.linalg.norm(lacking - _squares(H, further)) > 0.5 * np.linalg.norm(left):
                    break
                dy, dW = dy + more, further
            return dW, dy, drift - (H.T * dy) @ H

        dW, dy, dS = direction(0.0, None)
        along, across = min(1.0, 0.95 * _longest(dW, of_W)), min(1.0, 0.95 * _longest(dS))
        left = float(np.sum((W + along * dW) * (np.eye(m) + across * dS))) / m
        # Mehrotra's sigma; where the predictor hardly moves, the step goes to the path instead.
        share = min(1.0, max(left / mu, 1e-6)) ** 2 if min(along, across) > 0.1 else 0.5
        dW, dy, dS = direction(share * mu, dW @ dS)
        # Nearer to the boundary where the predictor went far, as in SDPT3 (Toh, Todd & Tutuncu 1999).
        most = 0.9 + 0.08 * min(along, across)
        moved, across = W + min(1.0, most * _longest(dW, of_W)) * dW, min(1.0, most * _longest(dS))
        self.y = y + across * dy
        # Coordinates in which the next S is I.
        values, vectors = np.linalg.eigh(np.eye(m) + across * 0.5 * (dS + dS.T))
        root = vectors * np.sqrt(values)
        moved = root.T @ moved @ root
        # One order of memory for all, or a resumed run would have other bits.
        self.T, self.W = (
            np.ascontiguousarray(T @ (vectors / np.sqrt(values))),
            np.ascontiguousarray(0.5 * (moved + moved.T)),
        )

    def _proven(self) -> CertifiedFactor:
        """Return the certified point of the least error: the path's, or one polished near it."""
        dual = np.zeros(len(self.problem.b))
        dual[self.kept] = self.y
        low = self._lowest()
        values, vectors = np.linalg.eigh(self.W)
        R = reduced(self.T @ (vectors * np.sqrt(np.maximum(values, 0.0))), 0.0)
        found = self._certified(self.U @ R * np.sqrt(self.k), dual, low)
        if found.error > self.tol and self.near <= NEAR * self.tol:
            for factor in self._polished(R):
                found = min(found, self._certified(factor, dual, low), key=lambda one: one.error)
                if found.error <= self.tol:
                    break
        return found

    def _lowest(self) -> float:
        """Return a number that no eigenvalue of S(y) is below; 0 where rounding alone says that one is negative."""
        S, eps = self._slack(self.y), 4.0 * np.finfo(float).eps
        # LAPACK's eigenvalues are off by some roundings of the row sums, times the root of m.
        rounding = eps * np.sqrt(len(S)) * float(abs(S).sum(axis=1).max())
        low = float(linalg.eigvalsh(S, subset_by_index=[0, 0])[0]) - rounding
        if low >= 0:
            return low
        G, T, y = self.G, self.T, self.y
        H = G @ T
        # Of each product, the sum of the sizes of what is added up; H is rounded itself.
        sizes = abs(T).T @ abs(T) + (abs(H).T * abs(y)) @ (abs(H) + 2.0 * (abs(G) @ abs(T)))
        least = float(linalg.eigvalsh(-(T.T @ T) - (H.T * y) @ H, subset_by_index=[0, 0])[0])
        return 0.0 if least > eps * np.sqrt(len(y)) * float(sizes.sum(axis=1).max()) else low

    def _certified(self, factor: Array, dual: Array, low: float) -> CertifiedFactor:
        factor = reduced(factor, 1e-15)
        return CertifiedFactor(factor, dual, self.problem.certify(factor, dual, low), low)

    def _polished(self, R: Array) -> Iterator[Array]:
        """Yield the start, where there is one, and factors (n, r) in which distances hold better, each nearer."""
        if self.start is not None:
            yield self.start
        for share in CUTS:
            near, before = reduced(R, share), np.inf
            for _ in range(POLISHES):
                image = self.G @ near
                lacking = self.b - np.einsum("sr,sr->s", image, image)
                size = float(np.linalg.norm(lacking))
                if size > 0.5 * before:
                    break
                before = size
                # Gauss-Newton's least step: the gradient of g'R R'g is 2 g (R'g)', and M has their inner products.
                M = 4.0 * (image @ image.T) * (self.G @ self.G.T)
                M[np.diag_indices(len(M))] += 1e-15 * float(M.diagonal().mean())
                try:
                    steps = linalg.cho_solve(linalg.cho_factor(M, overwrite_a=True), lacking)
                except linalg.LinAlgError:
                    break
                near = near + 2.0 * (self.G.T * steps) @ image
                yield self.U @ near * np.sqrt(self.k)


def _factored(M: Array) -> Array:
    """Return a Cholesky factor of M (q, q) with the least share of its diagonal added that makes one."""
    for more in (1e-14, 1e-12, 1e-10):
        M[np.diag_indices(len(M))] *= 1.0 + more
        try:
            return np.asarray(linalg.cholesky(M, lower=True, check_finite=False))
        except linalg.LinAlgError:
            continue
    raise linalg.LinAlgError


def _squares(G: Array, V: Array) -> Array:
    """Return g_s'V g_s (p,)."""
    return np.asarray(np.einsum("sm,sm->s", G @ V, G))


def _independent(G: Array) -> NDArray[np.int64]:
    """Return the numbers (q,), rising, of linearly independent constraints g_s g_s', by which the others are given."""
    # (g_s'g_t)^2 = <g_s g_s', g_t g_t'>: the Gram matrix of the constraints.
    products = (G @ G.T) ** 2
    squares = np.sqrt(products.diagonal())
    # Of edges of no length on the face g_s is rounding, which is not to be scaled up.
    root = np.where(squares > NO_LENGTH * squares.max(initial=0.0), squares, np.inf)
    products /= root[:, None] * root
    _, pivots, rank, _ = linalg.lapack.dpstrf(products, tol=DEPENDENT, lower=1)
    return np.sort(np.asarray(pivots[:rank], np.int64) - 1)


def _longest(change: Array, factor: Array | None = None) -> float:
    """Return the largest t with A + t `change` psd, A = factor factor', or I."""
    if factor is not None:
        half = linalg.solve_triangular(factor, change, lower=True, check_finite=False)
        change = linalg.solve_triangular(factor, half.T, lower=True, check_finite=False)
    if not np.isfinite(change).all():
        raise linalg.LinAlgError
    low = float(linalg.eigvalsh(0.5 * (change + change.T), subset_by_index=[0, 0], check_finite=False)[0])
    return np.inf if low >= 0 else -1.0 / low

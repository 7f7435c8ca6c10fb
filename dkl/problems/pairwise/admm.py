"""KL-ADMM: the updates of Hu & Kwok (2013), (5), written for rank slabs.

    minimize over V, U   tr(V'LU) + gamma/2 sum over (i,j) in T of W_ij (v_i.u_j - T_ij)^2   subject to V = U      (5)

rows v_i, u_i of V, U (n x r; the paper's are r x n), weights W_ij (1 in the paper). With M = gamma W T - L, one sparse matrix,
W T being the product entry by entry, the updates (11)-(13) are
    c_i = (M U - Lambda + rho U)_i,   v_i = (c_i - sum_{j in T_i} w_ij u_j) / rho,
    d_i = (M V + Lambda + rho V)_i,   u_i = (d_i - sum_{j in T_i} w_ij v_j) / rho,   Lambda += rho (V - U),
w_i from the small systems of linalg/slabs/small_systems.py. Everything but the dot products in those systems is local to a slab of
columns, so an iteration is two visits of each slab with one sum over slabs after each: after "v" (V.V and V.D) and after
"u" (U.U and U.C). The penalty rho of the next half-step is known only after the sum; therefore the slabs keep M U - Lambda
and the term rho U enters where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from dkl.linalg.slabs import slab_ops as kernels
from dkl.linalg.slabs.slab_ops import lanes_of
from dkl.linalg.slabs.small_systems import Filled, SmallSystems, solve

if TYPE_CHECKING:
    from dkl.blocks.slabs.slab_program import Carry

PAPER = "paper"
"""Value of `stopping` and `adapt_rho`: as the paper prints them."""
RHO_FLOOR = 10.0  # (15)
RHO_BALANCE = 10.0  # (15)
CYCLE_WINDOW = 20
"""Iterations without a lower primal residual before a cycle is suspected."""
CYCLE_SHARE = 0.1
"""Share of the step |V+ - V|: a primal residual below it is that of a slow run, not of a cycle."""
SCALARS = ("moved", "size", "gradient_scale", "gap", "multiplier_size", "u_size", "u_multiplier")


@dataclass(frozen=True, eq=False)
class PairwiseADMM:
    """The program of an owner of slabs (see `SlabProgram`). Arrays: V, U, Lambda, and C, which holds M U - Lambda or M V + Lambda.

    V, U and Lambda are committed; C follows from them in the opening phase "prime". A vector of sums is
    [pair dots (p,), edge dots (nnz of T,), scalars (7,)], the scalars named by SCALARS.
    """

    matrix: sparse.csr_array  # M = gamma W T - L in the factors' dtype
    systems: SmallSystems
    targets: NDArray[np.float64]  # T_ij for every entry of the pattern, explicit zeros kept
    weights: NDArray[np.float64]  # W_ij, likewise
    gamma: float
    rank: int
    width: int
    dtype: np.dtype
    tol: float
    rho_floor: float = RHO_FLOOR
    adapt_rho: bool | str = True
    stopping: str = "relative"

    opening = "prime"
    cycle = ("v", "u")
    arrays = ("V", "U", "Lambda", "C")
    committed = ("V", "U", "Lambda")

    @classmethod
    def of(
        cls,
        laplacian: sparse.csr_array,
        targets: sparse.csr_array,
        *,
        gamma: float,
        weights: NDArray[np.float64] | None = None,
        rank: int,
        width: int,
        dtype: DTypeLike,
        tol: float,
        adapt_rho: bool | str = True,
        stopping: str = "relative",
    ) -> PairwiseADMM:
        """Return the program for the Laplacian L and the targets T, both CSR (n, n).

        `targets` has its whole diagonal and explicit zeros for cannot-link pairs, indices sorted; `weights` (nnz of T,) are
        its entries', None for ones. `width`: columns of a slab;
        `tol`: tolerance of both residuals, relative, or with stopping "paper" absolute, as Algorithm 1 has it. rho's floor is (15)'s
        or, where larger, `spectral_bound` of L; with adapt_rho "paper" it is (15)'s, and no cycle raises it.
        """
        # One matrix with the union of both patterns: an update costs one sparse product instead of two.
        values = targets.data.astype(float)
        sizes = np.ones(values.size) if weights is None else weights
        pulled = sparse.csr_array((gamma * (sizes * values), targets.indices, targets.indptr), shape=targets.shape)
        matrix = sparse.csr_array(pulled - laplacian)
        matrix.sort_indices()
        # In the factors' dtype with int32 columns: an iteration reads this matrix twice, and is bound by memory.
        packed = sparse.csr_array(
            (matrix.data.astype(dtype), matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64)),
            shape=matrix.shape,
        )
        systems = SmallSystems.of(targets, weights)
        # The paper's floor of 10 is below the stable penalty where L is not normalized.
        floor = RHO_FLOOR if adapt_rho == PAPER else max(RHO_FLOOR, spectral_bound(laplacian))
        return cls(packed, systems, values, sizes, gamma, rank, width, np.dtype(dtype), tol, floor, adapt_rho, stopping)

    @property
    def n(self) -> int:
        """Return the number of patterns."""
        return int(self.matrix.shape[0])

    # -- the contract of an owner ---------------------------------------------------------------------------------

    def io(self, phase: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return (arrays that the phase reads, arrays that it writes); no others are moved out of core."""
        return {
            "prime": (("U", "Lambda"), ("C",)),
            "v": (("U", "C", "V", "Lambda"), ("V", "C")),
            "u": (("V", "C", "Lambda"), ("U", "Lambda", "C")),
        }[phase]

    def sums_size(self, phase: str) -> int:
        """Return the length of the vector of sums; the same for all phases."""
        return self.systems.n_pairs + self.systems.indices.size + len(SCALARS)

    def gathers(self, phase: str) -> tuple[str, NDArray[np.int64]] | None:
        """Return (array, rows) that hubs need of the factor just updated; None where no pattern is a hub."""
        # A hub's system is built from whole rows, of which slabs have a part each.
        if self.systems.hubs.size == 0:
            return None
        return ("V" if phase == "v" else "U"), self.systems.gathered

    def split(self, sums: NDArray[np.float64]) -> tuple[NDArray, NDArray, NDArray]:
        """Return (pair dots, edge dots, scalars) of a vector of sums, as views."""
        pairs, edges = self.systems.n_pairs, self.systems.indices.size
        return sums[:pairs], sums[pairs : pairs + edges], sums[pairs + edges :]

    def start(self, rho: float) -> Carry:
        """Return the carry before the first iteration, with the penalty rho or, where larger, its floor."""
        # The paper's floor is of the halving alone, not of the start.
        first = float(rho) if self.adapt_rho == PAPER else max(float(rho), self.rho_floor)
        cycle = {"rho_floor": self.rho_floor, "least_primal": float("inf"), "least_at": 0}
        return {"iteration": 0, "rho": first, "converged": False, **cycle}

    def is_carry(self, carry: Carry) -> bool:
        """Return whether a stored carry is valid: the numbers that iterations need, each of its type."""
        rho, floor, least = (carry.get(name) for name in ("rho", "rho_floor", "least_primal"))
        counts = all(type(carry.get(name)) is int and carry[name] >= 0 for name in ("iteration", "least_at"))
        numbers = all(type(value) is float and value >= 0 for value in (rho, floor, least))
        return (
            counts
            and numbers
            and type(carry.get("converged")) is bool
            and 0 < carry["rho"] < np.inf > carry["rho_floor"]
        )

    def next_carry(self, phase: str, sums: NDArray[np.float64], carry: Carry) -> Carry:
        """Return the scalars after a phase.

        After "v" the dual residual; after "u" objective, residuals (14), penalty (15) and the stopping test: Boyd's relative form of
        (14), |V - U| <= tol |V| and rho |V+ - V| <= tol |M V + Lambda|, or with stopping "paper" the larger of both residuals below tol.
        """
        pair, edge, scalars = self.split(sums)
        if phase == "prime":
            return carry
        moved, size, gradient_scale, gap, multiplier_size, _, u_multiplier = (float(value) for value in scalars)
        if phase == "v":
            return carry | {
                "dual_residual": carry["rho"] * moved**0.5,
                "v_norm": size**0.5,
                "gradient_scale": gradient_scale**0.5,
            }
        objective, loss = self.objective(pair, edge, u_multiplier)
        primal, dual = gap**0.5, carry["dual_residual"]
        # Boyd's relative test (Boyd et al. 2011, section 3.3.1). The multiplier tends to zero here (both half-steps are
        # stationary only then), so the dual residual is measured against the terms that cancel in the gradient,
        # |M V + Lambda|.
        if self.stopping == PAPER:
            converged = max(primal, dual) < self.tol
        else:
            converged = primal <= self.tol * carry["v_norm"] and dual <= self.tol * carry["gradient_scale"]
        done = carry | {
            "iteration": carry["iteration"] + 1,
            "objective": objective,
            "loss": loss,
            "primal_residual": primal,
            "multiplier_norm": multiplier_size**0.5,
            "rho_used": carry["rho"],
            "converged": bool(converged),
            "finite": bool(np.isfinite(primal + dual + objective)),
        }
        if self.adapt_rho == PAPER:
            done["rho"] = next_rho(carry["rho"], primal, dual)
        elif self.adapt_rho:
            done |= guard_against_cycle(done, primal, moved=dual / carry["rho"])
            done["rho"] = max(next_rho(carry["rho"], primal, dual, done["rho_floor"]), done["rho_floor"])
        return done

    def entries(self, pair: NDArray) -> NDArray:
        """Return K_ij for every entry of T."""
        return pair[self.systems.edge_pair]

    def objective(self, pair: NDArray, edge: NDArray, multiplier_dot: float) -> tuple[float, float]:
        """Return ((1), its loss term) at K = U U': tr(KL) = gamma <W T, K> - U.Lambda - U.C, C = M U - Lambda."""
        # K on T comes from the dot products of U that the phase has summed: the objective takes no product.
        entries = self.entries(pair)
        pulled = float((self.weights * self.targets) @ entries)
        smooth = self.gamma * pulled - multiplier_dot - float(edge[self.systems.diagonal].sum())
        loss = 0.5 * self.gamma * float(np.sum(self.weights * (entries - self.targets) ** 2))
        return smooth + loss, loss

    def message(
        self, phase: str, sums: NDArray[np.float64], rows: NDArray | None, carry: Carry, filled: Filled
    ) -> tuple[float, NDArray]:
        """Return (rho, -W) for the next half-step: solves the small systems of the last one's sums."""
        pair, edge, _ = self.split(sums)
        solved = np.empty(edge.size, self.dtype)
        solve(self.systems, pair, edge, carry["rho"], self.gamma, solved, rows, filled)
        return carry["rho"], solved

    def visit(
        self, phase: str, slab: dict[str, NDArray], columns: range, message: Any, total: NDArray[np.float64]
    ) -> None:
        """Do a half-step on a slab: updates (13) of V or U, for "u" also of Lambda; then C and dot products."""
        lanes = lanes_of(self.width)
        v, u, multiplier, linear = slab["V"], slab["U"], slab["Lambda"], slab["C"]
        _, _, scalars = self.split(total)
        if phase == "prime":
            self._next_linear(u, -1.0, multiplier, linear, total)
            scalars[-1] += kernels.dot_rows(0, len(u), u, multiplier, lanes)
            return
        rho, weights = message
        t = self.systems
        # Every argument of a kernel is in the factors' dtype: a double here would compute single precision in double.
        rho = self.dtype.type(rho)
        if phase == "v":
            moved, size = kernels.proximal_update(t.indptr, t.indices, weights, rho, u, linear, v, lanes)
            scalars[0] += moved
            scalars[1] += size
            scalars[2] += self._next_linear(v, 1.0, multiplier, linear, total)
        else:
            kernels.proximal_update(t.indptr, t.indices, weights, rho, v, linear, u, lanes)
            scalars[3:7] += kernels.multiplier_update(rho, v, u, multiplier, lanes)
            self._next_linear(u, -1.0, multiplier, linear, total)

    def _next_linear(self, x: NDArray, sign: float, multiplier: NDArray, linear: NDArray, total: NDArray) -> float:
        """Compute linear <- M x + sign Lambda, and x's dot products with x and it; return |linear|^2."""
        pair, edge, _ = self.split(total)
        lanes = lanes_of(self.width)
        m, t = self.matrix, self.systems
        known = (m.indptr, m.indices, m.data, t.indptr, t.indices, x, self.dtype.type(sign), multiplier)
        size = kernels.product_and_edge_dots(*known, linear, edge, lanes)
        kernels.pair_dots(t.left, t.right, x, x, pair, lanes)
        return float(size)


def next_rho(rho: float, primal: float, dual: float, floor: float = RHO_FLOOR) -> float:
    """Return the updated penalty (15), which keeps the two residuals within a factor of 10.

    Doubled where the primal residual is the larger by more, halved, down to `floor`, where the dual one is.
    """
    # (15): a primal residual that lags behind asks for a larger penalty.
    if primal > RHO_BALANCE * dual:
        return 2.0 * rho
    if dual > RHO_BALANCE * primal:
        return max(rho / 2.0, floor)
    return rho


def guard_against_cycle(carry: Carry, primal: float, moved: float) -> Carry:
    """Return changes of the carry that notice a cycle and end it by a higher floor of rho.

    The paper's rule (15) cannot see one. primal = |V - U|, moved = |V+ - V|. At a penalty too small for the bilinear terms the iterates
    alternate for ever between two points, both residuals constant and of like size. A converging run has |V - U| falling, or small against
    the step.
    """
    # Progress of a tenth restarts the count; smaller changes also occur within a cycle.
    if primal < 0.9 * carry["least_primal"]:
        return {"least_primal": primal, "least_at": carry["iteration"]}
    if carry["iteration"] - carry["least_at"] < CYCLE_WINDOW or primal < CYCLE_SHARE * moved:
        return {}
    return {"rho_floor": 2.0 * carry["rho"], "least_primal": primal, "least_at": carry["iteration"]}


def spectral_bound(laplacian: sparse.csr_array) -> float:
    """Return an upper bound of lambda_max(L): max (|L| x)_i / x_i (Collatz-Wielandt), x > 0 by powers.

    ADMM must not let rho fall below it. Along an eigenvector of L with eigenvalue l rho an iteration without pairs maps
    (u, Lambda/rho) by [[(1-l)^2, l], [l(1-l), -l]], which is stable only for l < 1.618. The paper's floor of 10 is enough
    for a normalized Laplacian, whose eigenvalues are at most 2, and not for others.
    """
    # |L| has no smaller a spectral radius than L, and is nonnegative, which the theorem asks for.
    magnitude = abs(laplacian)
    x = np.ones(laplacian.shape[0])
    bound = np.inf
    for _ in range(20):
        y = magnitude @ x
        bound = min(bound, float((y / x).max()))
        # Positive everywhere, or an isolated pattern would divide by zero in the next step.
        x = np.maximum(y / max(float(y.max()), np.finfo(float).tiny), 1e-6)
    return bound

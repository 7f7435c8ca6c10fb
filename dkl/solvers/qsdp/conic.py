"""Conic solvers for a convex quadratic over the psd cone, in the two forms of Wu, So, Li & Li (2009).

With A = B'B of rank r, y = svec(Y) of N = m (m + 1) / 2 numbers in the place of the paper's vec(Y), and q = r + 2:

    "sqlp"   (21)-(25)  min (e1 - e2)'u + b'y,  (e1 + e2)'u = 1,  B y - (u3 .. uq) = 0,  u in the second-order cone,  Y psd
    "scsdp"  (15)-(16)  min s + b'y,            [[I, A^1/2 y], [(A^1/2 y)', s]] psd of N + 1 rows,                    Y psd
    "direct"            min y'A y + b'y,        Y psd: what a solver with a quadratic objective takes as it is

Y is what the engines return, and the certificate is the problem's: of the z that their slack of Y gives, or of 2 (B(Y) - t), whichever
proves more. That z is handed out unchanged, and the DIMACS errors are its own, as these are to show what an engine found; only the gap is
proven with z corrected. The outcome is "solved" where it is proven, "stationary" where an engine alone calls it solved.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import InputError, MemoryBudgetError
from dkl.linalg.symmetric.psd_quadratic import smat, svec
from dkl.resources import format_bytes, parse_bytes
from dkl.solvers.qsdp.interface import ConeQuadratic, QSDPSolution, check_bounded, check_numbers
from dkl.solvers.watch import Outcome, Watch, verdict

if TYPE_CHECKING:
    from types import ModuleType

Array = NDArray[np.float64]
FORMS = ("sqlp", "scsdp", "direct")
RANK = 1e-12
"""Share of A's largest diagonal entry below which pivots of its Cholesky factorization are zero."""
LEAST_BYTES = 1 << 20
"""Bytes of any program, however small."""
MEMORY = 8 * 2**30
"""Bytes that are allowed where no limit is given."""


@dataclass(frozen=True)
class _Scaled:
    """f / scale, by its rows B / sqrt(scale), targets and C: the tolerances of solvers are absolute where numbers are of size 1."""

    rows: Array
    targets: Array
    C: Array

    @classmethod
    def of(cls, problem: ConeQuadratic, scale: float) -> _Scaled:
        """Return the problem's own numbers, scaled."""
        root = np.sqrt(scale)
        return cls(problem.map.rows() / root, problem.targets / root, problem.C / scale)

    @cached_property
    def linear(self) -> Array:
        """Return b (N,): f = |rows y|^2 + b'y + |t|^2."""
        # |B y - t|^2 = |B y|^2 - 2 t'B y + |t|^2, whose last term is a constant.
        return svec(self.C) - 2.0 * self.rows.T @ self.targets

    @cached_property
    def root(self) -> tuple[Array, NDArray[np.intp]]:
        """Return (B (r, N) of A = B'B, the r columns that make it upper triangular), by pivoted Cholesky."""
        A = self.rows.T @ self.rows
        # Pivots below this are rounding: A is singular where squares depend on each other.
        least = RANK * max(float(A.diagonal().max(initial=0.0)), 1e-300)
        factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(A, tol=least)
        B = np.zeros((rank, len(A)))
        # The factor's columns back in the order of y.
        B[:, pivots - 1] = np.triu(factor)[:rank]
        return B, np.asarray(pivots[:rank] - 1, np.intp)

    def dual(self, slack: Array) -> Array:
        """Return the z (p,) for which C + rows'z is `slack` (N,), as nearly as there is one.

        With rows = U B, U of orthonormal columns, it is U w - 2 t of B'w = slack - b, and B's pivots give both w and U.
        """
        B, pivots = self.root
        triangle = B[:, pivots]
        w = scipy.linalg.solve_triangular(triangle, (slack - self.linear)[pivots], trans="T")
        # The rows' pivot columns give U, as B's pivot columns are triangular.
        return self.rows[:, pivots] @ scipy.linalg.solve_triangular(triangle, w) - 2.0 * self.targets


def conic_bytes(form: str, m: int, p: int, engine: str = "clarabel") -> int:
    """Return the most bytes that `form` takes for m rows and p squares.

    Fitted to peaks of processes: 1.1 to 2.2 times what was measured. Clarabel holds its system and that one's factor by columns, and Y's
    own scaling, dense: numbers in N^2, and those of B in N r, many times over. Of "scsdp" it splits the big block, which is an arrow, into
    N of two rows; how these overlap takes N^3. SCS takes less, and of "scsdp" the matrix alone, and its copies.
    """
    N = m * (m + 1) // 2
    r = min(p, N)
    own = {"sqlp": 80 * N**2 + 200 * N * r, "scsdp": 30 * N**3, "direct": 200 * N**2}[form]
    if (form, engine) == ("scsdp", "scs"):
        own = 800 * N**2
    return own + 16 * p * N + LEAST_BYTES


def solve_conic(
    problem: ConeQuadratic,
    form: str = "sqlp",
    *,
    engine: str = "clarabel",
    tol: float = 1e-8,
    max_iter: int = 200,
    memory_limit: int | str | None = None,
    watch: Watch | None = None,
) -> QSDPSolution:
    """Solve in one of FORMS by one of ENGINES until the proven relative gap is at most `tol`, or they end.

    One row of the history, after the solve: no engine lets itself be watched. InputError where an engine is not installed, where
    f has no lower bound over the psd cone, and for invalid numbers; MemoryBudgetError, before anything is formed, where
    the form takes more than `memory_limit`.
    """
    for name, given, known in (("form", form, FORMS), ("engine", engine, ENGINES)):
        if given not in known:
            raise InputError("unknown", where=name, got=repr(given), wanted=f"one of {', '.join(known)}")
    check_numbers(tol=tol, max_iter=max_iter)
    watch = Watch() if watch is None else watch
    p, m = problem.map.shape
    # The bytes are known from shapes alone, so nothing is formed before it fits.
    needed, allowed = conic_bytes(form, m, p, engine), parse_bytes(memory_limit) or MEMORY
    if needed > allowed:
        raise MemoryBudgetError(
            f'solver="{form}" at m = {m} does not fit', where="solver", got=format_bytes(needed),
            wanted=f"at most {format_bytes(allowed)}",
            remedy='raise memory_limit, take solver="low-rank", or a smaller n_basis',
        )  # fmt: skip
    require(engine)
    check_bounded(problem)
    nothing = problem.at(np.zeros((m, 1)))
    proven = problem.certificate(nothing)
    if watch.outcome is not None:
        return QSDPSolution(watch.outcome, nothing.factor, nothing.proof.dual, proven, 0, solver=form)
    if proven.relative_gap <= tol:  # engines need not be asked, and some fail where all numbers are zero
        return _told(watch, proven, nothing.factor, nothing.proof.dual, 0, form, tol, Outcome.SOLVED)
    # Engines have absolute tolerances: their numbers should be of size 1.
    J, scale = _coordinates(problem), _size(problem)
    scaled, N = _Scaled.of(problem.congruent(J), scale), m * (m + 1) // 2
    found = ENGINES[engine](PROGRAMS[form](scaled), tol, max_iter)
    Y = J @ smat(found.x[:N], m) @ J
    # An engine's Y is psd to its tolerance only; the negative part is dropped.
    values, vectors = np.linalg.eigh(Y)
    factor = vectors[:, values > 0] * np.sqrt(values[values > 0])
    # Two candidates of a dual: by the residual at Y, and by the engine's own slack.
    duals = (2.0 * problem.at(factor).residual, np.sqrt(scale) * scaled.dual(found.dual[-N:]))
    certificate, dual = min(((problem.certify(Y, z), z) for z in duals), key=lambda proven: proven[0].gap)
    rests = Outcome.STATIONARY if found.is_done else Outcome.STALLED
    if not found.is_done and found.steps >= max_iter:
        rests = Outcome.ITERATION_LIMIT
    return _told(watch, certificate, factor, dual, found.steps, form, tol, rests)


def _told(
    watch: Watch, certificate: Any, factor: Array, dual: Array, steps: int, form: str, tol: float, rests: Outcome
) -> QSDPSolution:  # fmt: skip
    """Record the row and return the solution; `rests`: its outcome if neither watch nor gap gives one."""
    stop_reason = watch.record({
        "iteration": steps, "objective": certificate.objective, "gap": certificate.gap,
        "relative_gap": certificate.relative_gap, "rank": factor.shape[1], "step": form,
    })  # fmt: skip
    ended = verdict(stop_reason, solved=certificate.relative_gap <= tol, at_limit=False)
    return QSDPSolution(ended or rests, factor, dual, certificate, steps, solver=form)


def _coordinates(problem: ConeQuadratic) -> Array:
    """Return J (m, m): the problem's own scaling, and Z so large that the identity comes near the targets."""
    J = problem.scaling()
    identity = problem.congruent(J).map.see(np.eye(len(J))).squares()
    # The multiple of the identity of the least |B(Y) - t|^2.
    size = float(identity @ problem.targets) / max(float(identity @ identity), 1e-300)
    return J * np.sqrt(size) if size > 0 else J


def _size(problem: ConeQuadratic) -> float:
    """Return f(0), about |B y|^2 at an optimum; without targets, the scale of C in coordinates of size 1."""
    size = float(problem.targets @ problem.targets)
    return size if size > 0 else max(float(np.abs(problem.C).max()), 1e-300)


def _sqlp(problem: _Scaled) -> ConicProgram:
    """Build the program "sqlp" in x = (y, u)."""
    (B, _), b, m = problem.root, problem.linear, len(problem.C)
    (r, N), k = B.shape, len(B) + 2
    unit = sparse.csc_matrix(([1.0, 1.0], ([0, 0], [0, 1])), shape=(1, k))
    pick = sparse.hstack([sparse.csc_matrix((r, 2)), sparse.eye(r)])
    # Rows: (e1 + e2)'u = 1; B y = (u3 .. uq); u in the second-order cone; Y psd.
    G = sparse.bmat([
        [sparse.csc_matrix((1, N)), unit],
        [sparse.csc_matrix(B), -pick],
        [None, -sparse.eye(k)],
        [-sparse.eye(N), None],
    ], format="csc")  # fmt: skip
    h = np.zeros(G.shape[0])
    h[0] = 1.0
    q = np.concatenate([b, [1.0, -1.0], np.zeros(r)])
    cones = (("zero", 1 + r), ("soc", k), ("psd", m))
    return ConicProgram(sparse.csc_matrix((N + k, N + k)), q, G, h, cones)


def _scsdp(problem: _Scaled) -> ConicProgram:
    """Build the program "scsdp" in x = (y, s), with the symmetric root of A."""
    (B, _), b = problem.root, problem.linear
    m, N = len(problem.C), B.shape[1]
    # The paper's A^1/2, which is symmetric; any other root would do as well.
    values, vectors = np.linalg.eigh(B.T @ B)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    # The block's svec, by rows of its upper triangle: row i begins with its diagonal entry 1, and ends with sqrt 2 (A^1/2 y)_i.
    ends = np.cumsum(np.arange(N + 1, 0, -1)) - 1
    size = int(ends[-1]) + 1
    last = sparse.csc_matrix(([-1.0], ([size - 1], [N])), shape=(size, N + 1))
    rows, columns = np.repeat(ends[:-1], N), np.tile(np.arange(N), N)
    block = last + sparse.csc_matrix((-np.sqrt(2.0) * root.ravel(), (rows, columns)), shape=(size, N + 1))
    # Each row of the triangle begins with its diagonal entry, 1 but for the last, which is s.
    diagonal = np.concatenate([[0], ends[:-1] + 1])[:-1]
    h = np.zeros(size + N)
    h[diagonal] = 1.0
    own = sparse.hstack([-sparse.eye(N), sparse.csc_matrix((N, 1))])
    G = sparse.vstack([block, own], format="csc")
    q = np.concatenate([b, [1.0]])
    return ConicProgram(sparse.csc_matrix((N + 1, N + 1)), q, G, h, (("psd", N + 1), ("psd", m)))


def _direct(problem: _Scaled) -> ConicProgram:
    """Build the program "direct" in x = y."""
    rows, b, N = problem.rows, problem.linear, len(problem.linear)
    P = sparse.csc_matrix(2.0 * rows.T @ rows)
    G = -sparse.eye(N, format="csc")
    return ConicProgram(P, b, G, np.zeros(N), (("psd", len(problem.C)),))


PROGRAMS: dict[str, Callable[[_Scaled], ConicProgram]] = {"sqlp": _sqlp, "scsdp": _scsdp, "direct": _direct}


# Conic programs and their solvers from the extra `conic`: Clarabel (interior point), SCS (splitting).

ITERATIONS = 500
"""Iterations of splitting allowed for each one of an interior point: they are far cheaper."""
EXACT = 1e-3
"""Clarabel's tolerance as a share of the wanted gap.

A program's optimum may be far from zero where the problem's is near.
"""
LEAST = 1e-12
"""Clarabel's least tolerance: below it residuals rise by rounding, and it gives up where that happens, far from the optimum."""


@dataclass(frozen=True)
class ConicProgram:
    """min q'x + x'P x / 2, G x + s = h, s in `cones`: ("zero" or "soc", size) and ("psd", rows), in svec."""

    P: sparse.csc_matrix
    q: Array
    G: sparse.csc_matrix
    h: Array
    cones: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ConicPoint:
    """x; the dual of G x + s = h, in its order; iterations; whether it is solved to its tolerances."""

    x: Array
    dual: Array
    steps: int
    is_done: bool


def require(engine: str) -> ModuleType:
    """Return the module of an engine; raises InputError with how to install it if it is missing."""
    if importlib.util.find_spec(engine) is None:
        raise InputError(
            f"{engine} is not installed", where="solver", wanted="a conic solver",
            remedy="pip install 'dkl[conic]', or take solver=\"low-rank\"",
        )  # fmt: skip
    return importlib.import_module(engine)


def by_clarabel(program: ConicProgram, tol: float, max_iter: int) -> ConicPoint:
    """Solve the program by Clarabel, an interior point method."""
    clarabel = require("clarabel")
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, max_iter
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = max(EXACT * tol, LEAST)
    kinds = {"zero": clarabel.ZeroConeT, "soc": clarabel.SecondOrderConeT, "psd": clarabel.PSDTriangleConeT}
    # Its triangles go column by column.
    order = np.concatenate(_numbers(program.cones, _by_columns))
    G = sparse.csc_matrix(sparse.csr_matrix(program.G)[order])
    cones = [kinds[kind](size) for kind, size in program.cones]
    P = sparse.csc_matrix(sparse.triu(program.P))
    found = clarabel.DefaultSolver(P, program.q, G, program.h[order], cones, settings).solve()
    dual = np.empty(len(order))
    dual[order] = found.z
    return ConicPoint(np.asarray(found.x), dual, int(found.iterations), found.status == clarabel.SolverStatus.Solved)


def by_scs(program: ConicProgram, tol: float, max_iter: int) -> ConicPoint:
    """Solve the program by SCS, an operator splitting method."""
    scs = require("scs")
    sizes = {kind: [size for known, size in program.cones if known == kind] for kind in ("zero", "soc", "psd")}
    data = {"P": sparse.csc_matrix(sparse.triu(program.P)), "A": program.G, "b": program.h, "c": program.q}
    cone = {"z": sum(sizes["zero"]), "q": sizes["soc"], "s": sizes["psd"]}
    limits = {"eps_abs": tol, "eps_rel": tol, "max_iters": ITERATIONS * max_iter, "verbose": False}
    found = scs.SCS(data, cone, **limits).solve()
    info = found["info"]
    return ConicPoint(np.asarray(found["x"]), np.asarray(found["y"]), int(info["iter"]), info["status_val"] == 1)


def _numbers(
    cones: tuple[tuple[str, int], ...], triangle: Callable[[int], NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """Return the row numbers of each cone, those of psd cones in the order of `triangle`."""
    found, first = [], 0
    for kind, size in cones:
        order = triangle(size) if kind == "psd" else np.arange(size)
        found.append(first + order)
        first += len(order)
    return found


def _by_columns(rows: int) -> NDArray[np.int64]:
    """Return, for each entry of a svec that goes by columns, its place in our svec."""
    place = np.zeros((rows, rows), np.int64)
    i, j = np.triu_indices(rows)
    place[i, j] = np.arange(len(i))
    columns, of_rows = np.tril_indices(rows)
    return place[of_rows, columns]


ENGINES: dict[str, Callable[[ConicProgram, float, int], ConicPoint]] = {
    "clarabel": by_clarabel,
    "scs": by_scs,
}

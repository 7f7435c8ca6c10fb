"""A convex quadratic over the psd cone handed to conic solvers, in the two forms that Wu, So, Li & Li (2009) compare.

With A = B'B of rank r, y = svec(Y) of N = m (m + 1) / 2 numbers in the place of the paper's vec(Y), and q = r + 2:

    "sqlp"   (21)-(25)  min (e1 - e2)'u + b'y,  (e1 + e2)'u = 1,  B y - (u3 .. uq) = 0,  u in the second-order cone,  Y psd
    "scsdp"  (15)-(16)  min s + b'y,            [[I, A^1/2 y], [(A^1/2 y)', s]] psd of N + 1 rows,                    Y psd
    "direct"            min y'A y + b'y,        Y psd: what a solver with a quadratic objective takes as it is

The solver is Clarabel, an interior point, or SCS, splitting. Both come with the extra `conic`. Y is what they return; z = 2 (B(Y) - t) is
what the certificate is computed from, by the problem and not by them.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import InputError, MemoryBudgetError
from dkl.linalg.psd_quadratic import smat, svec
from dkl.linalg.symmetric_maps import SymmetricMap
from dkl.solvers.qsdp_low_rank import QSDPSolution
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch

Array = NDArray[np.float64]
FORMS = ("sqlp", "scsdp", "direct")
ENGINES = ("clarabel", "scs")
RANK = 1e-12
"""Of the largest diagonal entry of A: pivots of its Cholesky factorization below it are zero."""
ITERATIONS = 500
MEMORY = 8 * 2**30
"""Bytes that are allowed where no limit is given."""


class Problem(Protocol):
    """min |B(Y) - t|^2 + <C, Y> over Y psd."""

    @property
    def map(self) -> SymmetricMap:
        """B."""

    @property
    def targets(self) -> Array:
        """(p,) t."""

    @property
    def C(self) -> Array:
        """(m, m)."""

    def at(self, factor: Array) -> Any:
        """The point of a factor (m, r)."""

    def certify(self, Y: Array, z: Array) -> Any:
        """What is proven of any Y and z."""

    def scaling(self) -> Array:
        """J (m, m)."""

    def congruent(self, J: Array) -> Self:
        """The problem in Z, Y = J Z J'."""


@dataclass(frozen=True)
class _Scaled:
    """f / scale, by its rows B / sqrt(scale), targets and C: the tolerances of solvers are absolute where numbers are of size 1."""

    rows: Array
    targets: Array
    C: Array

    @classmethod
    def of(cls, problem: Problem, scale: float) -> _Scaled:
        """The problem's own numbers, scaled."""
        root = np.sqrt(scale)
        return cls(problem.map.rows() / root, problem.targets / root, problem.C / scale)


@dataclass(frozen=True)
class ConicProgram:
    """min q'x + x'P x / 2 with G x + s = h, s in the product of `cones`: ("zero" or "soc", size) and ("psd", rows), in svec."""

    P: sparse.csc_matrix
    q: Array
    G: sparse.csc_matrix
    h: Array
    cones: tuple[tuple[str, int], ...]


def conic_bytes(form: str, m: int, p: int) -> int:
    """About what a form of m rows and p squares takes: the factor of the interior point's linear system, and B or A beside it."""
    N = m * (m + 1) // 2
    r = min(p, N)
    if form == "scsdp":
        # The big block's own scaling matrix is dense, of its svec's size squared: N^4 / 4 numbers.
        return 12 * ((N + 1) * (N + 2) // 2) ** 2
    return 24 * ((N + r) ** 2 // 2 + N * r) + 8 * p * N


def solve_conic(
    problem: Problem,
    form: str = "sqlp",
    *,
    engine: str = "clarabel",
    tol: float = 1e-8,
    max_iter: int = 200,
    memory_limit: int | None = None,
    watch: Watch | None = None,
) -> QSDPSolution:
    """The problem in one of FORMS by one of ENGINES; `tol`: their relative gap and feasibility.

    One row of the history, after the solve: no engine lets itself be watched. InputError where an engine is not installed,
    MemoryBudgetError, before anything is formed, where the form takes more than `memory_limit`.
    """
    for name, given, known in (("form", form, FORMS), ("engine", engine, ENGINES)):
        if given not in known:
            raise InputError("unknown", where=name, got=repr(given), wanted=f"one of {', '.join(known)}")
    watch = Watch() if watch is None else watch
    p, m = problem.map.shape
    needed, allowed = conic_bytes(form, m, p), MEMORY if memory_limit is None else memory_limit
    if needed > allowed:
        raise MemoryBudgetError(
            f'solver="{form}" at m = {m} does not fit', where="solver", got=f"{needed / 2**30:.1f} GiB",
            wanted=f"{allowed / 2**30:.1f} GiB", remedy='take solver="low-rank", or a smaller n_basis',
        )  # fmt: skip
    run = {"clarabel": _clarabel, "scs": _scs}[engine]
    require(engine)
    nothing = problem.at(np.zeros((m, 1)))
    if watch.outcome is not None:
        factor, certificate, ended, steps = (
            nothing.factor,
            problem.certify(np.zeros((m, m)), 2 * nothing.residual),
            watch.outcome,
            0,
        )
        return QSDPSolution(ended, factor, certificate, steps, solver=form)
    J, scale = _coordinates(problem), _size(problem)
    x, steps, is_solved = run(PROGRAMS[form](_Scaled.of(problem.congruent(J), scale)), tol, max_iter)
    Y = J @ smat(x[: m * (m + 1) // 2], m) @ J
    values, vectors = np.linalg.eigh(Y)
    factor = vectors[:, values > 0] * np.sqrt(values[values > 0])
    certificate = problem.certify(Y, 2.0 * problem.at(factor).residual)
    told = watch.record({
        "iteration": steps, "objective": certificate.objective, "gap": certificate.gap,
        "relative_gap": certificate.relative_gap, "rank": factor.shape[1], "step": form,
    })  # fmt: skip
    outcome = (
        Outcome.SOLVED if is_solved else told or (Outcome.ITERATION_LIMIT if steps >= max_iter else Outcome.STALLED)
    )
    return QSDPSolution(outcome, factor, certificate, steps, solver=form)


def require(engine: str) -> Any:
    """The module of an engine; InputError with how to install it where it is missing."""
    if importlib.util.find_spec(engine) is None:
        raise InputError(
            f"{engine} is not installed", where="solver", wanted="a conic solver",
            remedy="pip install 'dkl[conic]', or take solver=\"low-rank\"",
        )  # fmt: skip
    return importlib.import_module(engine)


def _coordinates(problem: Problem) -> Array:
    """J (m, m): the problem's own scaling, and Z so large that the identity comes near the targets."""
    J = problem.scaling()
    identity = problem.congruent(J).map.see(np.eye(len(J))).squares()
    size = float(identity @ problem.targets) / max(float(identity @ identity), 1e-300)
    return J * np.sqrt(size) if size > 0 else J


def _size(problem: Problem) -> float:
    """f(0), of which |B y|^2 is about the size at an optimum; without targets, the scale of C in coordinates of size 1."""
    size = float(problem.targets @ problem.targets)
    return size if size > 0 else max(float(np.abs(problem.C).max()), 1e-300)


def square_root(problem: _Scaled) -> tuple[Array, Array]:
    """(B (r, N) of full rank r, b (N,)): f = |B y|^2 + b'y + |t|^2, by Cholesky with pivots, as the paper takes it."""
    rows = problem.rows
    b = svec(problem.C) - 2.0 * rows.T @ problem.targets
    A = rows.T @ rows
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(
        A, tol=RANK * max(float(A.diagonal().max(initial=0.0)), 1e-300)
    )
    B = np.zeros((rank, len(b)))
    B[:, pivots - 1] = np.triu(factor)[:rank]
    return B, b


def _sqlp(problem: _Scaled) -> ConicProgram:
    """x = (y, u)."""
    B, b = square_root(problem)
    m = len(problem.C)
    (r, N), k = B.shape, len(B) + 2
    unit = sparse.csc_matrix(([1.0, 1.0], ([0, 0], [0, 1])), shape=(1, k))
    pick = sparse.hstack([sparse.csc_matrix((r, 2)), sparse.eye(r)])
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
    """x = (y, s), with the symmetric root of A."""
    B, b = square_root(problem)
    m, N = len(problem.C), B.shape[1]
    values, vectors = np.linalg.eigh(B.T @ B)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    # The block's svec, by rows of its upper triangle: row i begins with its diagonal entry 1, and ends with sqrt 2 (A^1/2 y)_i.
    ends = np.cumsum(np.arange(N + 1, 0, -1)) - 1
    size = int(ends[-1]) + 1
    last = sparse.csc_matrix(([-1.0], ([size - 1], [N])), shape=(size, N + 1))
    rows, columns = np.repeat(ends[:-1], N), np.tile(np.arange(N), N)
    block = last + sparse.csc_matrix((-np.sqrt(2.0) * root.ravel(), (rows, columns)), shape=(size, N + 1))
    diagonal = np.concatenate([[0], ends[:-1] + 1])[:-1]
    h = np.zeros(size + N)
    h[diagonal] = 1.0
    own = sparse.hstack([-sparse.eye(N), sparse.csc_matrix((N, 1))])
    G = sparse.vstack([block, own], format="csc")
    q = np.concatenate([b, [1.0]])
    return ConicProgram(sparse.csc_matrix((N + 1, N + 1)), q, G, h, (("psd", N + 1), ("psd", m)))


def _direct(problem: _Scaled) -> ConicProgram:
    """x = y."""
    rows = problem.rows
    b = svec(problem.C) - 2.0 * rows.T @ problem.targets
    N = len(b)
    P = sparse.csc_matrix(2.0 * rows.T @ rows)
    G = -sparse.eye(N, format="csc")
    return ConicProgram(P, b, G, np.zeros(N), (("psd", len(problem.C)),))


PROGRAMS: dict[str, Callable[[_Scaled], ConicProgram]] = {"sqlp": _sqlp, "scsdp": _scsdp, "direct": _direct}


def _clarabel(program: ConicProgram, tol: float, max_iter: int) -> tuple[Array, int, bool]:
    """(x, iterations, whether it is solved to its tolerances)."""
    clarabel = require("clarabel")
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_iter = False, max_iter
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
    kinds = {"zero": clarabel.ZeroConeT, "soc": clarabel.SecondOrderConeT, "psd": clarabel.PSDTriangleConeT}
    # Its triangles go column by column.
    order = np.concatenate(_numbers(program.cones, _by_columns))
    G = sparse.csc_matrix(sparse.csr_matrix(program.G)[order])
    cones = [kinds[kind](size) for kind, size in program.cones]
    P = sparse.csc_matrix(sparse.triu(program.P))
    found = clarabel.DefaultSolver(P, program.q, G, program.h[order], cones, settings).solve()
    return np.asarray(found.x), int(found.iterations), found.status == clarabel.SolverStatus.Solved


def _scs(program: ConicProgram, tol: float, max_iter: int) -> tuple[Array, int, bool]:
    """The same; an iteration of an interior point counts as ITERATIONS of splitting, which are far cheaper."""
    scs = require("scs")
    sizes = {kind: [size for known, size in program.cones if known == kind] for kind in ("zero", "soc", "psd")}
    data = {"P": sparse.csc_matrix(sparse.triu(program.P)), "A": program.G, "b": program.h, "c": program.q}
    cone = {"z": sum(sizes["zero"]), "q": sizes["soc"], "s": sizes["psd"]}
    limits = {"eps_abs": tol, "eps_rel": tol, "max_iters": ITERATIONS * max_iter, "verbose": False}
    found = scs.SCS(data, cone, **limits).solve()
    return np.asarray(found["x"]), int(found["info"]["iter"]), found["info"]["status_val"] == 1


def _numbers(
    cones: tuple[tuple[str, int], ...], triangle: Callable[[int], NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """The rows of each cone in its new order: triangles in that of `triangle`, others as they are."""
    found, first = [], 0
    for kind, size in cones:
        order = triangle(size) if kind == "psd" else np.arange(size)
        found.append(first + order)
        first += len(order)
    return found


def _by_columns(rows: int) -> NDArray[np.int64]:
    """Which entry of our svec each of one that goes by columns is."""
    place = np.zeros((rows, rows), np.int64)
    i, j = np.triu_indices(rows)
    place[i, j] = np.arange(len(i))
    columns, of_rows = np.tril_indices(rows)
    return place[of_rows, columns]

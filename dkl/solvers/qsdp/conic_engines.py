"""Conic programs and their solvers from the extra `conic`: Clarabel (interior point), SCS (splitting)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import InputError

if TYPE_CHECKING:
    from types import ModuleType

Array = NDArray[np.float64]
ITERATIONS = 500
"""Iterations of splitting allowed for each one of an interior point: they are far cheaper."""
EXACT = 1e-3
"""Clarabel's tolerance as a share of the wanted gap.

A program's optimum may be far from zero where the problem's is near.
"""


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
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = EXACT * tol
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
    """Return the rows of each cone in its new order: triangles in that of `triangle`, others as they are."""
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

"""Any linear objective over the psd cone under linear constraints, and any convex quadratic over it, by factors of few columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError, MemoryBudgetError
from dkl.estimators.base.progress import warn_of, watch_for
from dkl.estimators.qsdp.basis.hard import MEASURE, REMEDIES
from dkl.estimators.qsdp.basis.plan import room_for_factors
from dkl.linalg.symmetric.symmetric_maps import RowForms
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.linear import LinearSDP
from dkl.problems.qsdp.problem import QuadraticSDP
from dkl.resources import format_bytes, machine_memory, parse_bytes, peak_rss
from dkl.solvers.qsdp.augmented import LinearSDPSolution, solve_augmented
from dkl.solvers.qsdp.interface import QSDPSolution
from dkl.solvers.qsdp.low_rank import solve_low_rank
from dkl.solvers.watch import Result, remedies

__all__ = ["QuadraticSDP", "low_rank_sdp", "quadratic_sdp"]

if TYPE_CHECKING:
    from scipy import sparse

    from dkl.estimators.base.validation import UserCallbacks

    Symmetric: TypeAlias = ArrayLike | sparse.sparray


def low_rank_sdp(
    C: Symmetric,
    A: Sequence[Symmetric],
    b: ArrayLike,
    *,
    upper: ArrayLike | None = None,
    trace: float | None = None,
    start: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
    memory_limit: int | str | None = None,
    callbacks: UserCallbacks = None,
    verbose: int = 0,
) -> LinearSDPSolution:
    """Minimize <C, K> over positive semidefinite K with <A_s, K> = b_s, or at most b_s, by an augmented Lagrangian of K = R R'.

    For kernels by constraints that no learner here has: completion of a kernel from some of its entries, similarities that are known to be
    larger than others, angles that are kept. Matrices with few entries make it fast; K itself is never formed.

    Parameters
    ----------
    C : (n, n) symmetric matrix, dense or sparse
    A : sequence of p symmetric matrices (n, n), dense or sparse
    b : (p,) numbers
    upper : (p,) booleans, optional
        Whether <A_s, K> <= b_s in the place of an equation; by default none is.
    trace : float, optional
        A number that the trace of no feasible K exceeds, by which a dual that is nearly feasible proves a bound. By default the
        constraints': each diagonal entry must be set or bounded by one that reads it alone then.
    start : (n, k) array, optional
        A factor to start from, feasible or not.
    tol : float
        Relative gap, and infeasibility relative to the norm of b, at which it is solved.
    max_iter : int
        Rounds at most, each with a move of the multipliers.
    memory_limit : int, str or None
        Bytes that factors of sparse matrices may have foreseen for them; without room for them it is slower, and proves less.
    callbacks, verbose
        Functions called with each row of the history (True ends the search); progress on standard error.

    Returns
    -------
    LinearSDPSolution
        `factor` (n, r) R, its columns orthogonal, largest first; `dual` (p,); `certificate` with objective, bound, relative_gap,
        infeasibility and min_eigenvalue; `outcome`; `n_iter`.

    Raises
    ------
    InputError
        For what is not valid, and where multipliers prove that no K meets the constraints.

    See Also
    --------
    MaximumVarianceUnfolding : Distances of neighbors as constraints.
    LaplacianKernelLearner : Pairs as constraints.
    quadratic_sdp : A quadratic objective without constraints.

    References
    ----------
    S. Burer, R. D. C. Monteiro, A nonlinear programming algorithm for solving semidefinite programs via low-rank factorization,
    Mathematical Programming 95, 2003.

    Examples
    --------
    Three unit vectors, the first and the last at 60 degrees from the second, as far apart as they can be:

    >>> import numpy as np
    >>> import dkl
    >>> entry = lambda i, j: (np.eye(3)[[i]].T @ np.eye(3)[[j]] + np.eye(3)[[j]].T @ np.eye(3)[[i]]) / 2
    >>> A = [entry(0, 0), entry(1, 1), entry(2, 2), entry(0, 1), entry(1, 2)]
    >>> found = dkl.low_rank_sdp(entry(0, 2), A, [1, 1, 1, 0.5, 0.5])
    >>> round(found.certificate.objective, 4), found.outcome.value
    (-0.5, 'solved')
    """
    problem = LinearSDP.of_matrices(C, A, b, upper=upper, trace=trace)
    given = _start(start, problem.n)
    # A start is checked before the watch opens: a wrong one leaves no line of progress and no open callback.
    with watch_for(callbacks, verbose) as watch:
        found = solve_augmented(
            problem, tol=tol, max_iter=max_iter, start=given, room=room_for_factors(parse_bytes(memory_limit)),
            watch=watch.stage("solve"),
        )  # fmt: skip
        result = Result(
            found.outcome, found.n_iter, watch.history, {"total": watch.seconds}, peak_rss(),
            remedy=REMEDIES[found.outcome], proven=found.certificate.error, asked=tol, measure=MEASURE,
        )  # fmt: skip
        warn_of(result, stacklevel=2)
    # `Result` may have turned "solved" into "stalled": the two are to say the same.
    return replace(found, outcome=result.outcome)


def _start(start: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    """Return a checked start (n, k), or None."""
    if start is None:
        return None
    wanted = f"({n}, k) numbers"
    given = checks.numbers(start, "start", wanted, 2)
    if len(given) != n or not given.shape[1]:
        raise InputError("of another size", where="start", got=f"shape {given.shape}", wanted=wanted)
    return given


QUADRATIC_REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled="steps no longer come nearer: loosen tol, or scale the squares alike",
    numerical_error="a value stopped being finite: scale the targets and C",
)
COPIES, SQUARES = 4, 24
"""Arrays of the size of the map's, and of Y's, that are alive at once."""


def quadratic_sdp(
    problem: QuadraticSDP,
    *,
    start: ArrayLike | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
    memory_limit: int | str | None = None,
    callbacks: UserCallbacks = None,
    verbose: int = 0,
) -> QSDPSolution:
    """Minimize |B(Y) - t|^2 + <C, Y> over positive semidefinite Y, by factors Y = R R', to a proven relative gap.

    The form in which Wu et al. have graph Laplacian regularized kernels K = Q Y Q', Q (n, m) of smooth eigenvectors: `dkl guide quadratic`
    has completion of kernels, conformal eigenmaps and rigid patches in some lines each. A trace that is to be 1 is a square:
    where f is homogeneous of degree 2, with (tr Y - 1)^2 added the least Y, divided by its trace, is that of f under tr Y = 1.

    Parameters
    ----------
    problem : QuadraticSDP
    start : (m, r) array, optional
        A factor of a Y near the least one.
    tol : float
        Relative gap at which it is solved.
    max_iter : int
        Steps at most.
    memory_limit : int, str or None
        Bytes that the process may take; by default what the machine has free.
    callbacks, verbose
        Functions called with each row of the history (True ends the search); progress on standard error.

    Returns
    -------
    QSDPSolution
        `factor` (m, r) R; `dual` (p,); `certificate` with objective, bound, relative_gap and the DIMACS errors; `outcome`; `n_iter`.

    Raises
    ------
    InputError
        Where f has no lower bound over the cone, and for what is not valid.
    MemoryBudgetError
        Where the matrices do not fit memory_limit.

    See Also
    --------
    low_rank_sdp : A linear objective under linear constraints.
    LaplacianKernelLearner, MaximumVarianceUnfolding : Learners whose problem this is.

    References
    ----------
    X.-M. Wu, A. M.-C. So, Z. Li, S.-Y. R. Li, Fast graph Laplacian regularized kernel learning via semidefinite-quadratic-linear
    programming, NIPS 2009.

    Examples
    --------
    The nearest kernel to an indefinite matrix T, by one square an entry, is T's positive part:

    >>> import numpy as np
    >>> import dkl
    >>> T = np.array([[1.0, 2.0], [2.0, 1.0]])
    >>> E = np.zeros((3, 2, 2))
    >>> E[0, 0, 0] = E[1, 1, 1] = 1
    >>> E[2, 0, 1] = E[2, 1, 0] = 2**-0.5
    >>> found = dkl.quadratic_sdp(dkl.QuadraticSDP.from_matrices(E, [1, 1, 2 * 2**0.5]))
    >>> (found.factor @ found.factor.T).round(3)
    array([[1.5, 1.5],
           [1.5, 1.5]])
    """
    if not isinstance(problem, QuadraticSDP):
        got, remedy = f"a {type(problem).__name__}", "dkl.QuadraticSDP.from_matrices(B, t, C)"
        raise InputError("no problem", where="problem", got=got, wanted="a QuadraticSDP", remedy=remedy)
    p, m = problem.map.shape
    # All that is free, not a share of it as of learners: nothing but this problem, which the caller holds, is to be made here.
    budget = parse_bytes(memory_limit) or machine_memory()
    # Dense forms are p m^2 numbers; a map of pairs of rows keeps their numbers alone, which are few next to Y.
    needed = 8 * m**2 * (SQUARES + COPIES * p * isinstance(problem.map, RowForms))
    if needed > budget:
        what = f"{p:,} matrices of {m:,} rows do not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(needed))
    given = _start(start, m)
    with watch_for(callbacks, verbose) as watch:
        found = solve_low_rank(problem, tol=tol, max_iter=max_iter, start=given, watch=watch.stage("solve"))
        result = Result(
            found.outcome, found.n_iter, watch.history, {"total": watch.seconds}, peak_rss(),
            remedy=QUADRATIC_REMEDIES[found.outcome], proven=found.certificate.relative_gap, asked=tol,
        )  # fmt: skip
        warn_of(result, stacklevel=2)
    return replace(found, outcome=result.outcome)

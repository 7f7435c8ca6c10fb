"""`low_rank_sdp`: any linear objective over the psd cone under linear constraints, by factors of few columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.estimators.base.progress import warn_of, watch_for
from dkl.estimators.qsdp.basis.hard import MEASURE, REMEDIES
from dkl.estimators.qsdp.basis.hard_plan import room_for_factors
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.linear import LinearSDP
from dkl.resources import parse_bytes, peak_rss
from dkl.solvers.qsdp.augmented import LinearSDPSolution, solve_augmented
from dkl.solvers.result import Result

if TYPE_CHECKING:
    from scipy import sparse

    from dkl.estimators.base.user_types import UserCallbacks

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
    given: NDArray[np.float64] | None = None
    if start is not None:
        wanted = f"({problem.n}, k) numbers"
        given = checks.numbers(start, "start", wanted, 2)
        if len(given) != problem.n or not given.shape[1]:
            raise InputError("of another size", where="start", got=f"shape {given.shape}", wanted=wanted)
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
    return found

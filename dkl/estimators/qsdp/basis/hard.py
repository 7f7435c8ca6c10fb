"""Fit of a kernel under hard constraints: its solution, and the kernel by its own eigenvectors.

K = R R' is found on all rows, without a basis of the graph. What a learner shows of it is K = Q Y Q' all the same, Q the eigenvectors of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.qsdp.basis.fit import RANK, Basis
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.qsdp.linear import LinearSDP, SDPCertificate
from dkl.resources import peak_rss
from dkl.solvers.qsdp.augmented import LinearSDPSolution, solve_augmented
from dkl.solvers.qsdp.augmented_steps import reduced
from dkl.solvers.result import Result, remedies
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import BasisSettings
    from dkl.linalg.graph.laplacian import Similarity

Matrix = NDArray[np.float64]
MEASURE = "relative gap and infeasibility"
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled='steps no longer come nearer, as of exact distances that leave the kernel no room: take constraints="at-most", or loosen tol',
    numerical_error="a value stopped being finite: scale the rows",
)


@dataclass(frozen=True)
class HardSolution:
    """Kernel K = Q Y Q' by its eigenvectors Q (n, r), with Y diagonal; embedding (n, k), what is proven, and the result."""

    basis: Basis
    Y: Matrix = field(repr=False)
    embedding: Matrix = field(repr=False)
    solution: LinearSDPSolution
    result: Result

    @property
    def certificate(self) -> SDPCertificate:
        """Return the certificate."""
        found: SDPCertificate = self.solution.certificate
        return found


def solved_hard(
    problem: LinearSDP,
    laplacian: csr_array,
    similarity: Similarity,
    planned: HardPlan,
    settings: BasisSettings,
    watch: Watch,
    *,
    seconds: float = 0.0,
    rows: NDArray[np.int64] | None = None,
    most_axes: int | None = None,
    solve: Callable[[Watch], LinearSDPSolution] | None = None,
) -> HardSolution:
    """Solve under hard constraints and show the kernel by its eigenvectors; rows (n,): each row's row of the problem's K.

    laplacian (n, n): of the graph, which took `seconds`; most_axes: columns of the embedding, at most; solve: another solver than the
    augmented Lagrangian.
    """
    before = watch.seconds
    if solve is not None:
        found = solve(watch)
    else:
        found = solve_augmented(
            problem, tol=settings.tol, max_iter=settings.max_iter, room=planned.room, watch=watch.stage("solve")
        )
    with one_blas_thread():
        factor = reduced(found.factor if rows is None else found.factor[rows], RANK)
        sizes = np.linalg.norm(factor, axis=0)
        Q = np.ascontiguousarray(factor / sizes)
        if rows is None:  # what is handed out is what is proven of
            low = found.certificate.min_eigenvalue
            found = replace(found, certificate=problem.certify(Q * sizes, found.dual, low))
    basis = basis_of(Q, laplacian, similarity, seconds)
    times = {"graph": seconds, "solve": watch.seconds - before, "total": watch.seconds}
    result = Result(
        found.outcome, found.n_iter, watch.history, times, peak_rss(), plan=planned.plan.as_dict(),
        remedy=REMEDIES[found.outcome], proven=found.certificate.error, asked=settings.tol, measure=MEASURE,
    )  # fmt: skip
    return HardSolution(basis, np.diag(sizes**2), np.ascontiguousarray(factor[:, :most_axes]), found, result)


@one_blas_thread()
def basis_of(Q: Matrix, laplacian: csr_array, similarity: Similarity, seconds: float = 0.0) -> Basis:
    """Return the eigenvectors Q (n, r) of a kernel as a basis, of a graph that took `seconds`."""
    image = laplacian @ Q
    values = np.einsum("ij,ij->j", Q, image)
    apart = float(np.linalg.norm(image - Q * values, axis=0).max())
    residual = apart / float(abs(laplacian).sum(axis=1).max())
    return Basis(Q, values, residual, "constraints", similarity, {"graph": seconds})

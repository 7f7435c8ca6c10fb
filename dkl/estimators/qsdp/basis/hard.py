"""Fit of a kernel under hard constraints: the problem that a learner poses, its solution, and the kernel by its own eigenvectors.

K = R R' is found on all rows, without a basis of the graph. Learners keep it as K = Q Y Q' as well, with Q the eigenvectors of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.qsdp.basis.fit import RANK, Basis
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.qsdp.linear import LinearSDP, SDPCertificate
from dkl.resources import peak_rss
from dkl.solvers.qsdp.augmented import LinearSDPSolution
from dkl.solvers.qsdp.augmented_steps import reduced
from dkl.solvers.result import Outcome, Result, remedies
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dkl.estimators.base.user_types import CheckedRows
    from dkl.estimators.qsdp.basis.hard_store import HardCheckpointer
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.estimators.qsdp.settings import BasisSettings
    from dkl.linalg.graph.laplacian import Similarity

Matrix = NDArray[np.float64]
MEASURE = "relative gap and infeasibility"
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen tol",
    stalled="steps no longer come nearer: loosen tol",
    numerical_error="a value stopped being finite: scale the rows",
)


@dataclass(frozen=True)
class HardSolution:
    """Kernel K = Q Y Q' by its eigenvectors Q (n, r), with Y diagonal; embedding (n, k), what is proven, and the result.

    held_out: arrays that a run stores of the measurement of the quality.
    """

    basis: Basis
    Y: Matrix = field(repr=False)
    embedding: Matrix = field(repr=False)
    solution: LinearSDPSolution
    result: Result
    held_out: dict[str, Matrix] = field(default_factory=dict, repr=False)

    @property
    def certificate(self) -> SDPCertificate:
        """Return the certificate."""
        found: SDPCertificate = self.solution.certificate
        return found


class HardProblem(Protocol):
    """A learner's problem under hard constraints, with what a run stores to restore it."""

    @property
    def problem(self) -> LinearSDP:
        """Return the semidefinite program."""

    @property
    def laplacian(self) -> csr_array:
        """Return the Laplacian (n, n) of the graph."""

    @property
    def similarity(self) -> Similarity:
        """Return the similarity by which unseen rows are means of others."""

    def solve(
        self, rows: Any, planned: HardPlan, watch: Watch, checkpointer: HardCheckpointer | None = None
    ) -> HardSolution:
        """Return the kernel of checked rows (n, d), resumed from the state of the checkpointer, if any."""

    def with_quality(self, found: HardSolution, rows: CheckedRows, planned: HardPlan, watch: Watch) -> HardSolution:
        """Return `found` with its quality, of rows (n, d) learned from; warn if an alternative is better."""

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays by the names that the learner's arrays.py declares in the folder "basis"."""

    def model(self, found: HardSolution) -> dict[str, NDArray]:
        """Return the arrays of the folder "model" other than the kernel and its multipliers."""

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries on this problem."""

    @classmethod
    def restored(cls, n: int, found: dict[str, NDArray], similarity: Similarity, settings: Any) -> Self:
        """Restore the problem of n rows from the arrays that `arrays` returned; InputError for invalid ones."""


def solve_hard(
    posed: HardProblem,
    planned: HardPlan,
    settings: BasisSettings,
    watch: Watch,
    solve: Callable[[Watch], LinearSDPSolution],
    *,
    seconds: float = 0.0,
    rows: NDArray[np.int64] | None = None,
    most_axes: int | None = None,
    stalled: str = "",
) -> HardSolution:
    """Solve under hard constraints and show the kernel by its eigenvectors; the bound holds for the kernel that is shown.

    seconds: of the graph; rows (n,): each row's row of the problem's K, where rows share them; most_axes: columns of the embedding, at
    most; stalled: what may help, other than a larger tol, where steps no longer come nearer.
    """
    before, problem = watch.seconds, posed.problem
    found = solve(watch)
    with one_blas_thread():
        # The problem's K may have one row for several of the learner's; `handed` is the kernel on the problem's rows again, so that
        # the certificate is of the very kernel that is returned, cut to its rank.
        # A factor by its singular vectors: columns are orthogonal then, and over their lengths eigenvectors of K.
        factor = reduced(found.factor if rows is None else found.factor[rows], RANK)
        sizes = np.linalg.norm(factor, axis=0)
        Q = np.ascontiguousarray(factor / sizes)
        handed = Q if rows is None else Q[np.unique(rows, return_index=True)[1]]
        low = found.certificate.min_eigenvalue
        # `low` is S's, which the factor has no part in: the costly eigenvalue is not computed again.
        found = replace(found, certificate=problem.certify(handed * sizes, found.dual, low))
    basis = basis_of(Q, posed.laplacian, posed.similarity, seconds)
    remedy = REMEDIES[found.outcome] + (stalled if found.outcome is Outcome.STALLED else "")
    times = {"graph": seconds, "solve": watch.seconds - before, "total": watch.seconds}
    result = Result(
        found.outcome, found.n_iter, watch.history, times, peak_rss(), plan=planned.plan.as_dict(),
        remedy=remedy, proven=found.certificate.error, asked=settings.tol, measure=MEASURE,
    )  # fmt: skip
    return HardSolution(basis, np.diag(sizes**2), np.ascontiguousarray(factor[:, :most_axes]), found, result)


@one_blas_thread()
def basis_of(Q: Matrix, laplacian: csr_array, similarity: Similarity, seconds: float = 0.0) -> Basis:
    """Return the eigenvectors Q (n, r) of a kernel as a basis, of a graph that took `seconds`."""
    image = laplacian @ Q
    # Rayleigh quotients: Q are no eigenvectors of L, and the residual says by how much.
    values = np.einsum("ij,ij->j", Q, image)
    apart = float(np.linalg.norm(image - Q * values, axis=0).max())
    residual = apart / (float(abs(laplacian).sum(axis=1).max()) or 1.0)  # 0 of rows that are all cut off
    return Basis(Q, values, residual, "constraints", similarity, {"graph": seconds})

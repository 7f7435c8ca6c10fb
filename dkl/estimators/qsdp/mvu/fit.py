"""Problems of unfoldings: RegMVU and Colored MVU in a basis, and hard distances on all rows.

The first are posed by the graph's edges, their lengths, a basis less its constant, and nu; hard distances are those of Wu et al. 2009,
(1)-(4).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from dkl.blocks.graph.distributed_products import Room
from dkl.blocks.graph.neighbor_graph import Graph, build_graph
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base import map_quality
from dkl.estimators.qsdp.basis.fit import Basis, BasisSolution
from dkl.estimators.qsdp.basis.hard import EndedMethod, HardCheckpointer, HardSolution, Method, solve_hard
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.io.plain_arrays import in_memory, refuse_too_large
from dkl.problems.qsdp import checks, linear
from dkl.problems.qsdp.linear import cliques_of, face_of_cliques
from dkl.problems.qsdp.problem import QuadraticSDP, default_nu, dependence, unfolding, variance
from dkl.resources import one_blas_thread
from dkl.side_information.labels import encode_labels, refuse_one_class, require_targets
from dkl.solvers.qsdp.augmented import solve_augmented
from dkl.solvers.qsdp.interior import MOST_TERMS, interior_bytes, solve_interior
from dkl.solvers.watch import Outcome, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.estimators.base.validation import CheckedRows, UserLabels
    from dkl.estimators.qsdp.basis.plan import HardPlan
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows
    from dkl.problems.qsdp.linear import LinearSDP
    from dkl.solvers.qsdp.augmented import LinearSDPSolution


Matrix = NDArray[np.float64]
EQUAL_WEIGHTS = 0.0
"""The sharpness of local widths at which all edges weigh 1."""
EDGE_BYTES = 4_000_000
"""Size of the differences of rows along edges that are computed at a time."""
FARTHEST = 1e130
"""Maximum distance of two neighbors."""


@dataclass(frozen=True)
class UnfoldingProblem:
    """Unfolding problem (11) in a basis.

    edges (e, 2), i < j, their squared distances (e,); side (n, k): a factor of the kernel of labels.
    """

    basis: Basis
    edges: NDArray[np.intp] = field(repr=False)
    squared: Matrix = field(repr=False)
    side: Matrix | None
    settings: UnfoldingSettings

    @classmethod
    def of(
        cls, rows: Rows, side: Matrix | None, m: int, settings: UnfoldingSettings, session: Session, bytes_used: int = 0,
        room: Room | None = None,
    ) -> UnfoldingProblem:  # fmt: skip
        """Build the problem from rows (n, d); components of the graph are joined by their shortest edges.

        Raises InputError for rows that are all equal.
        """
        graph, edges, squared = neighbor_edges(rows, settings, session, bytes_used)
        # Edges weigh 1, but unseen rows are means of their neighbors by nearness.
        basis = replace(
            Basis.of(graph, m, session, without_first=True, room=room), similarity=similarity_of_unseen(graph)
        )
        return cls(basis, edges, squared, side, settings)

    @property
    def most_axes(self) -> int:
        """Return the number of columns of the embedding."""
        return int(self.settings.n_components)

    @cached_property
    def reward(self) -> Matrix:
        """Return W (m, m), whose <W, Y> is to grow."""
        # Here too, not in `solve_basis` alone: whatever reads W or nu first, their bits are the same.
        with one_blas_thread():
            return variance(self.basis.Q) if self.side is None else dependence(self.basis.Q, self.side)

    @cached_property
    def nu(self) -> float:
        """Return the weight of the distances."""
        if not isinstance(self.settings.nu, str):
            return float(self.settings.nu)
        with one_blas_thread():
            largest = float(np.linalg.eigvalsh(self.reward)[-1])
        return default_nu(self.squared, float(self.basis.values[0]), largest)

    @cached_property
    def problem(self) -> QuadraticSDP:
        """Return the quadratic SDP in Y."""
        return unfolding(self.basis.Q, self.edges, self.squared, self.nu, self.reward)

    def hold_out(self, call: Callable[..., Any]) -> None:
        """Do nothing: the embedding's own rows are what its quality is measured on."""

    @property
    def start(self) -> None:
        """Return None: the low-rank method starts at zero."""
        return None

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a run stores in addition to the basis."""
        side = {} if self.side is None else {"side": np.ascontiguousarray(self.side)}
        return {"edges": self.edges.astype(np.int64), "squared": self.squared, **side}

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries: the number of edges and nu."""
        return {"n_edges": len(self.edges), "nu": self.nu}

    def with_quality(self, found: BasisSolution, rows: Rows, watch: Watch) -> BasisSolution:
        """Return `found` with its quality; see `BasisProblem.with_quality`."""
        return with_quality(found, rows, self.settings.holdout, watch)

    @classmethod
    def restored(cls, basis: Basis, found: dict[str, NDArray], settings: UnfoldingSettings) -> UnfoldingProblem:
        """Restore the problem from what `arrays` returned; InputError for invalid edges or lengths."""
        edges = checks.edges(found["edges"], len(basis.Q))
        squared = checks.edge_lengths(found["squared"], len(edges))
        return cls(basis, edges.astype(np.intp), squared, found.get("side"), settings)


def neighbor_edges(
    rows: Rows, settings: UnfoldingSettings, session: Session, bytes_used: int = 0
) -> tuple[Graph, NDArray[np.intp], Matrix]:
    """Return (the graph of rows (n, d), edges of weight 1; its edges (e, 2), i < j; their squared lengths (e,)).

    Components of the graph are joined by their shortest edges. Raises InputError for rows that are all equal.
    """
    graph = build_graph(
        rows, n_neighbors=min(settings.n_neighbors, int(rows.shape[0]) - 1), sigma="local", sharpness=EQUAL_WEIGHTS, joined_above=1,
        laplacian="unnormalized", memory_limit=settings.memory_limit, bytes_used=bytes_used, session=session,
    )  # fmt: skip
    edges, squared = _edges(rows, graph)
    _check_scale(rows, squared)
    return graph, edges, squared


def similarity_of_unseen(graph: Graph) -> Similarity:
    """Return the similarity by which unseen rows are means of their neighbors: by nearness, where edges weigh 1."""
    return replace(graph.similarity, sharpness=1.0)


def label_factor(y: UserLabels, n: int) -> Matrix:
    """Return a factor (n, k) of the kernel of labels y (n,), or y (n, k) itself; -1, None, NaN: unlabeled.

    Unlabeled rows have the mean of the others, so that they do not count in H L H. Raises InputError for no labels, or for those
    that distinguish no rows.
    """
    if y is None:
        what = "MaximumVarianceUnfolding(colored=True) requires y to be passed, but the target y is None"
        raise InputError(what, remedy="pass y with -1, None or NaN for unlabeled, or numbers (n, k)")
    y = in_memory(y, "y")
    values = np.asarray(y)
    if values.ndim < 2 or values.shape[1] == 1:
        codes = encode_labels(y)
        if len(codes) != n:
            raise InputError("inconsistent numbers of samples", where="y", got=f"shape {codes.shape}", wanted=f"({n},)")
        refuse_one_class(int(codes.max(initial=-1)) + 1, int(np.count_nonzero(codes >= 0)))
        one_hot = np.eye(codes.max() + 1)[codes]
        # H L H subtracts the mean of all rows, and that of the labeled ones is then the mean of all: unlabeled rows become 0.
        one_hot[codes < 0] = one_hot[codes >= 0].mean(axis=0)
        return one_hot
    require_targets(values)
    try:
        side = np.asarray(check_array(values, dtype=np.float64, input_name="y"))
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(" ".join(str(error).split()), where="y") from error
    if len(side) != n:
        raise InputError("inconsistent numbers of samples", where="y", got=f"shape {side.shape}", wanted=f"({n}, k)")
    if not np.ptp(side, axis=0).max() > 0:
        raise InputError("all rows are equal", where="y", wanted="numbers that differ between rows")
    return side


def _edges(rows: Rows, graph: Graph) -> tuple[NDArray[np.intp], Matrix]:
    """Return the edges (e, 2), i < j, and their squared distances (e,)."""
    upper = sp.coo_array(sp.triu(graph.laplacian, 1))
    i, j = upper.coords
    edges = np.stack([i, j], axis=1).astype(np.intp)
    # In double precision, whatever the rows are in: differences of values near the largest overflow in single.
    # At least one block, of no edges too: np.concatenate takes no empty list.
    step, count = max(1, EDGE_BYTES // (8 * rows.shape[1])), max(len(edges), 1)
    blocks = (slice(lo, lo + step) for lo in range(0, count, step))
    squared = np.concatenate(
        [_squared(rows[i[some]].astype(np.float64) - rows[j[some]].astype(np.float64)) for some in blocks]
    )
    if not squared.max(initial=0.0) > 0:
        raise InputError("all rows are equal", where="X", got="edges of length 0 alone", wanted="rows that differ")
    return edges, squared


def _squared(difference: Any) -> Matrix:
    """Return the squared lengths of rows, dense or sparse."""
    square = difference.multiply(difference) if sp.issparse(difference) else difference**2
    return np.asarray(square.sum(axis=1), np.float64).ravel()


def _check_scale(rows: Rows, squared: Matrix) -> None:
    """Raise InputError, with a value of the rows (n, d), if the squares of squared lengths (e,) overflow."""
    if float(np.sqrt(squared.max())) > FARTHEST:
        # Rows that far apart have a value beyond this.
        refuse_too_large(rows, FARTHEST / (2 * float(np.sqrt(rows.shape[1]))))


# Quality of an unfolding: how well it keeps neighbors, next to as many principal components.

ADVICE = "try more n_basis, another n_neighbors or nu"


def with_quality(solution: BasisSolution, rows: CheckedRows, holdout: float, watch: Watch) -> BasisSolution:
    """Return `solution` with the quality in its result; warn where principal components are better.

    rows (n, d), dense or sparse. Nothing is measured where `holdout` is 0, the fit was stopped, or rows or columns are too few.
    """
    if not holdout or not solution.embedding.shape[1]:
        return solution
    # A function of row numbers, as other maps pass: their coordinates may be too many to compute for all rows.
    embedding = solution.embedding.__getitem__
    result = map_quality.with_quality(solution.result, row_source(rows), embedding, ADVICE, watch=watch, stacklevel=3)
    return replace(solution, result=result)


HARD_ADVICE = 'try another n_neighbors, or constraints="at-most"'
STALLED = ', or take constraints="at-most": exact distances may leave the kernel no room'
# A spiral with edges to two rows on each side, 2 edges a row: factors solve it in seconds, the interior point stalls.
LOOSE, NEARLY = 2.2, 100.0
"""Edges a row up to which factors are tried first; error, in tol, up to which a stalled interior point is not followed by them."""
# A step costs by the factor's columns; the plan counts with 40 of them.
START_COLUMNS = 64
"""Maximum number of columns of X for the solver to start at X itself, which meets every distance."""


@dataclass(frozen=True)
class HardDistancesProblem:
    """Edges (e, 2), i < j, of n rows, and their squared distances (e,), which are kept or bound: (1)-(4).

    similarity: by which unseen rows are means of their neighbors; seconds: of the graph, 0 where it was not made now.
    """

    n: int
    edges: NDArray[np.intp] = field(repr=False)
    squared: NDArray[np.float64] = field(repr=False)
    similarity: Similarity
    settings: UnfoldingSettings
    seconds: float = 0.0
    nu: ClassVar[float] = np.inf

    @classmethod
    def of(cls, rows: Rows, settings: UnfoldingSettings, session: Session, bytes_used: int = 0) -> HardDistancesProblem:
        """Return the distances of neighbors among rows (n, d); InputError for rows that are all equal."""
        graph, edges, squared = neighbor_edges(rows, settings, session, bytes_used)
        return cls(int(rows.shape[0]), edges, squared, similarity_of_unseen(graph), settings, graph.seconds)

    @cached_property
    def laplacian(self) -> sparse.csr_array:
        """Return the Laplacian (n, n) of the edges, each of weight 1."""
        (i, j), e = self.edges.T, len(self.edges)
        W = sparse.csr_array((np.ones(2 * e), (np.r_[i, j], np.r_[j, i])), shape=(self.n, self.n))
        found = sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)
        found.sort_indices()
        return found

    @cached_property
    def problem(self) -> LinearSDP:
        """Return hard MVU (1)-(4), or with distances as upper bounds."""
        return linear.unfolding(self.n, self.edges, self.squared, is_upper=self.settings.constraints == "at-most")

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a run stores in addition to the similarity."""
        return {"edges": self.edges.astype(np.int64), "squared": self.squared}

    def model(self, found: HardSolution) -> dict[str, NDArray]:
        """Return the cliques of the face that the bound is of, if it is of one."""
        if found.solution.face is None:
            return {}
        cliques = cliques_of(self.n, self.edges)
        members = np.array([row for clique in cliques for row in clique], np.int64)
        return {"cliques": members, "clique_sizes": np.array([len(clique) for clique in cliques], np.int64)}

    def report_entries(self) -> dict[str, object]:
        """Return the report's entries: the number of edges."""
        return {"n_edges": len(self.edges)}

    @classmethod
    def restored(
        cls, n: int, found: dict[str, NDArray], similarity: Similarity, settings: UnfoldingSettings
    ) -> HardDistancesProblem:
        """Restore the problem from what `arrays` returned; InputError for invalid edges or lengths."""
        edges = checks.edges(found["edges"], n)
        squared = np.ascontiguousarray(checks.edge_lengths(found["squared"], len(edges)))
        return cls(n, np.ascontiguousarray(edges.astype(np.intp)), squared, similarity, settings)

    def solve(
        self, rows: Rows, planned: HardPlan, watch: Watch, checkpointer: HardCheckpointer | None = None
    ) -> HardSolution:
        """Return the kernel of most variance with the distances of neighbors among rows (n, d); see `HardProblem.solve`."""
        is_upper, start = self.settings.constraints == "at-most", _start(rows)
        # The interior point factorizes a dense matrix of as many rows as there are edges.
        is_small = len(self.edges) <= MOST_TERMS and interior_bytes(len(self.edges), self.n) <= planned.room
        solve = partial(self._solved, start, planned.room, is_small and not is_upper, checkpointer)
        return solve_hard(
            self, planned, self.settings, watch, solve, seconds=self.seconds, most_axes=int(self.settings.n_components),
            stalled="" if is_upper else STALLED,
        )  # fmt: skip

    def with_quality(self, found: HardSolution, rows: Rows, planned: HardPlan, watch: Watch) -> HardSolution:
        """Return `found` with its quality, next to principal components of the rows (n, d); unmeasured where `holdout` is 0."""
        if not self.settings.holdout:
            return found
        embedding = found.embedding.__getitem__
        result = map_quality.with_quality(
            found.result, row_source(rows), embedding, HARD_ADVICE, watch=watch, stacklevel=4
        )  # fmt: skip
        return replace(found, result=result)

    def _solved(
        self,
        start: NDArray[np.float64] | None,
        room: float,
        is_small: bool,
        checkpointer: HardCheckpointer | None,
        watch: Watch,
    ) -> LinearSDPSolution:
        """Solve by an interior point on the face that cliques leave, or by factors: by these first where edges are few.

        Where one stalls the other has its turn, and what is proven better is returned; of a problem that is not small factors are all.
        """
        problem, edges, settings = self.problem, self.edges, self.settings
        options: dict[str, Any] = {"tol": settings.tol, "max_iter": settings.max_iter, "start": start}

        def solve_by(method: Method, ended: EndedMethod | None = None) -> LinearSDPSolution:
            stage, kept = watch.stage(method), {}
            # Distances within a clique fix its Gram matrix: without the face the problem has no interior point to follow.
            face = face_of_cliques(problem.n, edges, self.squared) if method == "interior" else None
            if checkpointer is not None:
                size = None if face is None else face.shape[1]
                kept = checkpointer.options(watch, stage, method, size, ended)
            if face is None:
                return solve_augmented(problem, room=room, watch=stage, **kept, **options)
            return solve_interior(problem, face, edges, watch=stage, **kept, **options)

        # On rigid cliques no kernel of these distances is positive definite, and the multipliers of factors run away.
        is_loose = len(edges) <= LOOSE * problem.n
        one: Method = "solve" if is_loose or not is_small else "interior"
        other: Method = "interior" if one == "solve" else "solve"
        ended = None if checkpointer is None else checkpointer.ended(watch)
        first = solve_by(one) if ended is None else ended.solution(problem)
        # With many edges a row factors stall at gaps near 6e-4: they would not come nearer than the interior point has.
        is_near = not is_loose and first.certificate.error <= NEARLY * settings.tol
        if not is_small or first.outcome is not Outcome.STALLED or is_near:
            return first
        second = solve_by(other, EndedMethod.of(one, first))
        return min(first, second, key=lambda found: float(found.certificate.error))


def _start(rows: Any) -> NDArray[np.float64] | None:
    """Return the rows as a factor of a kernel that meets all constraints; None where they have more than START_COLUMNS columns."""
    if rows.shape[1] > START_COLUMNS:
        return None
    return np.ascontiguousarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)

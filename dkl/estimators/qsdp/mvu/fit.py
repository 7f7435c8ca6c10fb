"""Problems of RegMVU and Colored MVU: the graph's edges, their lengths, basis less its constant, nu."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_array

from dkl.blocks.graph.distributed_chebyshev import Room
from dkl.blocks.graph.neighbor_graph import Graph, build_graph
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base import map_quality
from dkl.estimators.qsdp.basis.fit import Basis, BasisSolution
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.io.plain_arrays import in_memory, refuse_too_large
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.problem import QuadraticSDP, default_nu, dependence, unfolding, variance
from dkl.side_information.labels import encode_labels, refuse_one_class, require_targets
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.estimators.base.user_types import CheckedRows, UserLabels
    from dkl.linalg.graph.laplacian import Similarity
    from dkl.linalg.rows import Rows

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

"""Memory and operations of solving problem (3), from its sizes alone, for checks before any work."""

from __future__ import annotations

from dataclasses import dataclass

DOUBLE = 8
CONSTRAINT_VECTORS = 24
"""Arrays of one number a constraint: points, PCG's and the loss's."""
INCIDENCE = 4
"""Numbers that a triplet's row of the incidence holds, kept with its transpose."""
PANELS = 2 * 32
"""Columns of the sampled product's buffers, for a thread; those of many threads are where `learned` makes four squares."""
LEADING = 12
"""Eigenvectors of K in a preconditioner, of 78 columns: 6 of ten classes help by half, and 24 hardly more than 10."""
PRODUCTS = 15
"""Hessian products that a Newton step is taken to need."""
PIECE = 512
"""Constraints whose coordinates on them are held at a time."""
MATRICES = 22
"""Dense matrices of the paper's method at a time: the problem's, K's and the trial's, those of Table 1, and intermediate sums."""
SAVED = 4.0
"""Products that a preconditioner saves, at least, each of six operations an entry and row."""
DIRECT_BYTES = 2**30
"""Maximum bytes of a direct solve of an active system."""


@dataclass(frozen=True)
class LogDetPlan:
    """Memory and operations of a solve, without the K0 that is handed in.

    bytes: at most at a time. squares: of them those of dense arrays, in units of 8 |P|^2 bytes. flops: of a Newton step with
    PRODUCTS Hessian products."""

    bytes: int
    squares: float
    flops: float


def logdet_plan(
    n_points: int,
    n_constraints: int,
    n_entries: int,
    *,
    rank: int | None = None,
    n_terms: int | None = None,
    widest: int = INCIDENCE,
) -> LogDetPlan:
    """Return the need of |P| = n_points rows, c constraints and q distinct entries.

    n_terms: entries of all constraints, by default INCIDENCE each; widest: of the largest of them.

    rank: None where K0_PP is inverted; else the columns of its factor: its rank if it is singular, or d for a metric.
    Inverted: K0^-1, two kernels and one in single precision, and while `learned` makes M, three more and what BLAS copies: 7 |P|^2
    doubles.
    By a factor: L, two B, products of their size and r^2 of the inner matrix; `learned` makes K and M of |P|^2, but for a metric.
    A direct solve of the active system is in it where all constraints may be active at once.
    """
    square = float(n_points) ** 2
    if rank is None:
        dense = 7.0 * square
        flops = square * n_points + PRODUCTS * 2.0 * (3 * n_entries) * n_points
    else:
        dense = 6.0 * n_points * rank + 3.0 * rank**2 + 4.0 * square
        work = 2.0 * n_points * rank**2 + 4.0 * n_entries * rank
        flops = work + rank**3 + PRODUCTS * (2.0 * work)
    # The incidence and its transpose are sparse; PCG and the loss hold a vector a constraint each.
    n_terms = INCIDENCE * n_constraints if n_terms is None else n_terms
    sparse = n_constraints * CONSTRAINT_VECTORS + 3 * n_terms + 8.0 * n_entries + PANELS * n_points
    direct = direct_bytes(n_constraints, n_entries, widest)
    # Made only where it saves more products than it takes operations.
    if is_preconditioned(n_points, n_constraints, n_entries):
        columns = LEADING * (LEADING + 1) / 2
        leading = columns * (4.0 * min(n_entries, widest * PIECE) + 2.0 * min(n_constraints, PIECE) + 3.0 * columns)
        sparse += max(0.0, leading - 4.0 * square)  # made before `learned` needs its four
    return LogDetPlan(
        int(DOUBLE * (dense + sparse)) + (direct if direct <= DIRECT_BYTES else 0), dense / max(square, 1.0), flops
    )


def matrix_form_bytes(rank: int, n_entries: int) -> int:
    """Return the most bytes of the paper's method on matrices (rank, rank), and of the rows that its margins are read from."""
    return DOUBLE * rank * (MATRICES * rank + 3 * n_entries)


def is_preconditioned(n_points: int, n_constraints: int, n_entries: int) -> bool:
    """Return whether a preconditioner of LEADING eigenvectors takes fewer operations than it saves."""
    return n_constraints * (LEADING * (LEADING + 1) / 2) ** 2 <= SAVED * 6.0 * n_entries * n_points


def central_path_bytes(n_constraints: int, rank: int) -> int:
    """Return the most bytes of a metric's step: all coordinates twice, and the smaller of two systems."""
    k = rank * (rank + 1) // 2
    return DOUBLE * (2 * n_constraints * k + 2 * min(n_constraints, k) ** 2)


def direct_bytes(n_active: int, n_entries: int, widest: int = INCIDENCE) -> int:
    """Return the most bytes of the Hessian of n_active constraints of at most `widest` entries each, and its factorization."""
    entries = min(n_entries, widest * n_active)
    return DOUBLE * (2 * n_active**2 + n_active * entries + 3 * entries**2)

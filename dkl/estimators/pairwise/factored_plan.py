"""Memory and rank of the factored solver of pairs, in this process or shared out over workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import PROCESS_BASE, Plan
from dkl.blocks.session import Session
from dkl.blocks.workers import owners
from dkl.errors import MemoryBudgetError
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.linalg.eigen.extreme_eigenvalues import DENSE
from dkl.linalg.rows.tree_sum import share
from dkl.problems.pairwise.slab_layout import groups
from dkl.problems.pairwise.terms import PairwiseTerms
from dkl.resources import machine_memory
from dkl.solvers.pairwise.state import START_RANK

FINISH_ARRAYS = 14
"""Arrays of the factor's size, at its padded width: see `dkl/solvers/pairwise/low_rank.py`."""
KEPT_ARRAYS, BLOCK_ARRAYS, BLOCK_BESIDE = 5, 6, 48
"""Arrays while the gap is certified: of the factor's size, of a Ritz block, and its extra columns."""
WORTHWHILE = 0.25
"""Share of this process's memory, at START_RANK columns, from which a cluster's workers share rows.

They send each other what their rows meet: below that, time lost outweighs memory saved
(benchmarks/pair_workers.md).
"""
IDLE = "the workers stay idle: the factored solver fits here, and on them would exchange more than it computes"
MAX_FINISH_RANK = 64
LEAST_FINISH_RANK = 4


def finish_rank(problem: PairwiseTerms, settings: PairwiseSettings) -> int:
    """Return the largest rank at which the factored solver fits in this process; see `rank_within`."""
    return rank_within(problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz), settings)


def fold_rank(n: int, laplacian_entries: int, target_entries: int, settings: PairwiseSettings) -> int:
    """Return the largest rank of the kernels that score held-out pairs; 0 if none fits in memory."""
    return rank_within(n, laplacian_entries, target_entries, settings, kept=settings.cv + 1)


def check_room(n: int, laplacian_entries: int, target_entries: int, settings: PairwiseSettings) -> int:
    """Return the largest rank of the kernels that choose gamma; MemoryBudgetError if no rank fits."""
    rank = fold_rank(n, laplacian_entries, target_entries, settings)
    if rank == 0:
        raise MemoryBudgetError(
            "the folds' kernels, which are learned in this process, do not fit", where="gamma='cv' or wrong_pairs='find'",
            got=f"memory_limit {settings.memory_limit}",
            remedy="raise memory_limit, lower cv, or give gamma as a number and wrong_pairs='trust'",
        )  # fmt: skip
    return rank


def rank_within(n: int, laplacian_entries: int, target_entries: int, settings: PairwiseSettings, kept: int = 0) -> int:
    """Return the largest rank, at most 64 and n, at which the factored solver fits in this process.

    It takes 14 arrays (n, width) in double precision, width at most the next power of two, or 5 of them and 6 of (n, width + 48),
    plus graph and pairs, and `kept` factors that are held meanwhile. 0 where no rank of 4 or more fits.
    """
    most = min(MAX_FINISH_RANK, n)
    if settings.memory_limit is None:
        return most
    room = settings.memory_limit - PROCESS_BASE - _matrices(laplacian_entries, target_entries, kept)
    width = MAX_FINISH_RANK
    while 8 * n * _columns(width, kept) > room:
        width //= 2
        if width < LEAST_FINISH_RANK:
            return 0
    return min(width, most)


def _matrices(laplacian_entries: int, target_entries: int, kept: int) -> int:
    """Return the bytes of S, the filter's two multiples of it, the arrays on T's pattern, and the pairs."""
    scores = 24 * bool(kept)  # of each pair, which is two entries, at three gammas
    return 3 * 12 * laplacian_entries + (96 + 8 * kept + scores) * target_entries


def _columns(width: int, kept: int) -> int:
    """Return the columns of all arrays (n, .) of the factored solver."""
    certified = (KEPT_ARRAYS + BLOCK_ARRAYS) * width + BLOCK_ARRAYS * BLOCK_BESIDE
    return max(FINISH_ARRAYS * width, certified) + kept * width


@dataclass(frozen=True)
class SharedPlan:
    """Memory plan of the factored solver with its rows on workers.

    n rows, factors of at most `rank` columns, `limit` bytes each (None: any).
    """

    n: int
    rank: int
    limit: int | None
    remedy: str

    @classmethod
    def of(cls, problem: PairwiseTerms, settings: PairwiseSettings, session: Session) -> SharedPlan | None:
        """Plan sharing the rows between workers; None where this process does the work.

        Sharing needs a cluster with enough memory, and a problem that is large for this process.
        """
        n, here = problem.n, finish_rank(problem, settings)
        most = min(MAX_FINISH_RANK, n)
        if (
            not session.is_distributed
            or n <= DENSE
            or (here == most and 8 * n * _columns(START_RANK, 0) < WORTHWHILE * machine_memory())
        ):
            return None
        place = Place.of(session)
        allowed = place.allowed(settings.memory_limit)
        limit = None if allowed is None else allowed - PROCESS_BASE - WORKER_EXTRA
        plan = cls(n, most, limit, place.more_memory)
        bounds, width = plan.bounds(place.processes), MAX_FINISH_RANK
        sizes = [sizes_of(problem.laplacian, problem.targets, bounds, k) for k in range(len(bounds) - 1)]
        while limit is not None and width > 0 and max(owner_bytes(size, width) for size in sizes) > limit:
            width = width // 2 if width > LEAST_FINISH_RANK else 0
        return replace(plan, rank=min(width, n))

    def bounds(self, workers: int) -> tuple[int, ...]:
        """Return (first row of each, n) for at most `workers` workers."""
        found = groups(self.n)
        return (*(found[part.start][0] for part in share(len(found), workers)), self.n)

    def largest_part(self, targets: sparse.csr_array, laplacian_entries: int, workers: int, width: int) -> int:
        """Estimate the largest worker's bytes at this width, before the graph is built.

        laplacian_entries: of L, in each worker.
        """
        bounds, empty = self.bounds(workers), sparse.csr_array((self.n, self.n))
        sizes = [sizes_of(empty, targets, bounds, k) for k in range(len(bounds) - 1)]
        return max(owner_bytes((own, met, laplacian_entries, entries), width) for own, met, _, entries in sizes)

    def check(self, problem: PairwiseTerms, bounds: tuple[int, ...], index: int, where: str) -> None:
        """Raise MemoryBudgetError if the worker at `where` cannot hold its rows (fewer workers than planned)."""
        sizes = sizes_of(problem.laplacian, problem.targets, bounds, index)
        needed = owner_bytes(sizes, max(self.rank, LEAST_FINISH_RANK))
        remedy = f"{self.remedy}, or more workers"
        owners.check_room(needed, self.limit, len(bounds) - 1, "the factored solver", where, remedy)


def sizes_of(
    laplacian: sparse.csr_array, targets: sparse.csr_array, bounds: tuple[int, ...], index: int
) -> tuple[int, int, int, int]:
    """Return a worker's numbers of rows, rows of others that its entries meet, entries of L and of T."""
    lo, hi = bounds[index], bounds[index + 1]
    met, entries = np.zeros(bounds[-1], bool), []
    for matrix in (laplacian, targets):
        own = matrix.indices[matrix.indptr[lo] : matrix.indptr[hi]]
        met[own] = True
        entries.append(len(own))
    met[lo:hi] = False
    return hi - lo, int(met.sum()), entries[0], entries[1]


def owner_bytes(sizes: tuple[int, ...], width: int) -> int:
    """Return the bytes of the factored solver for a worker's rows, at this padded width.

    Counted are its arrays, those parts of them that hold others' rows
    (V, a direction, two of the multipliers, four in single precision, and one of all columns that are mixed), S thrice, and the pairs.

    sizes: see `sizes_of`.
    """
    n_own, n_halo, laplacian_entries, target_entries = sizes
    arrays = n_own * _columns(width, 0) + n_halo * (6 * width + MAX_FINISH_RANK)
    return 8 * arrays + 3 * 16 * laplacian_entries + 128 * target_entries


def factored_plan(
    place: Place,
    rank: int,
    laplacian_entries: int,
    targets: sparse.csr_array,
    settings: PairwiseSettings,
    shared: SharedPlan | None,
    *,
    has_store: bool,
) -> Plan:
    """Plan the factored solver at the largest rank that it may reach; it starts at `rank`."""
    n, entries = int(targets.shape[0]), int(targets.nnz)
    most = rank_within(n, laplacian_entries, entries, settings) if shared is None else shared.rank
    width = max(most, min(LEAST_FINISH_RANK, n))
    held = {"graph and targets": 12 * laplacian_entries + 48 * entries}
    if shared is None:
        arrays, matrices = 8 * n * _columns(width, 0), _matrices(laplacian_entries, entries, 0)
        items = {"factor, gradients and directions": arrays, "gradient matrix and pairs": matrices} | held
    else:
        owners, own = max(place.processes, 1), laplacian_entries // max(place.processes, 1)
        items = {"a worker's rows, and those they meet": shared.largest_part(targets, own, owners, width)}
    disk = {"state of the solver": search_bytes(n, width)} if has_store else {}
    disk |= {"result": 8 * n * width, "graph": 12 * laplacian_entries} if has_store else {}
    return Plan(
        placement="memory",
        processes=1 if shared is None else place.processes,
        threads=place.threads,
        base=PROCESS_BASE,
        items=items,
        disk=disk,
        limit=settings.memory_limit if shared is None else place.allowed(settings.memory_limit),
        shape={"n": n, "rank": rank, "dtype": settings.dtype},
        remedy="raise memory_limit, or use solver='admm', which works out of core",
        idle_workers=IDLE if shared is None and place.distributed else "",
        own_bytes=0 if shared is None else PROCESS_BASE + held["graph and targets"] + 2 * 8 * n * width,
    )


def search_bytes(n: int, width: int) -> int:
    """Return the disk bytes of the factored solver's state at `width` columns, current and in progress.

    See estimators/pairwise/search_store.py.
    """
    within_a_round = 4 * 8 * width + 4 * width
    of_a_round = 8 * (2 * width + width + BLOCK_BESIDE)
    return 2 * n * (within_a_round + of_a_round)

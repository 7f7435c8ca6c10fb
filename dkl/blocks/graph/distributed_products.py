"""Products of a sparse matrix, and filtered subspaces, with the rows shared out over a cluster's workers.

A filter's rows of the matrix and of the block stay where they are between products: an owner sends another what that one's entries
meet, and sums of k x k numbers. This process has the matrix, which it hands out once, and after each pass the block, which it is asked
for in the end. Where a worker is lost or silent, the pass that was under way is repeated from there, by the workers that there are: the
bits are the same on any number of them.

Products with vectors are for the certificate's eigenvalue: a Lanczos step is one, hence one task a worker. Below WORTHWHILE_PRODUCTS
entries the driver is faster than a round through the scheduler: scipy multiplies about 10^9 entries a second.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory_plan import PROCESS_BASE, Place
from dkl.blocks.session import AlignedValue, Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.blocks.workers.exchange import Exchange
from dkl.blocks.workers.spmd import Owners, check_room
from dkl.errors import StateLost
from dkl.linalg.eigen.laplacian_eigenmaps import filter_bytes, most_owner_bytes, owner_bytes
from dkl.linalg.eigen.lowest_subspace import FilteredRows, Passes, PassesHere, Ritz, Standing, spectrum_top
from dkl.linalg.rows.tree_sum import OrderedRows, band_order, put_together, row_groups, rows_in_order, share
from dkl.resources import one_blas_thread

# -- memory ------------------------------------------------------------------------------------------------------------
# Memory that a search for eigenvectors may take, in this process and in workers.


@dataclass(frozen=True)
class Room:
    """Bytes that the search for eigenvectors may take in this process, and in each worker; None: whatever it needs."""

    here: int | None = None
    worker: int | None = None

    @classmethod
    def of(cls, place: Place, allowed: int, memory_limit: int | None, held: int) -> Room:
        """Compute the memory left in this process and in workers.

        This process may use `allowed` bytes and holds `held` on top of its base; memory_limit binds workers as well.
        """
        worker = place.allowed(memory_limit) if place.distributed else None
        return cls(allowed - PROCESS_BASE - held, None if worker is None else worker - PROCESS_BASE - WORKER_EXTRA)

    def has(self, needed: int) -> bool:
        """Return whether `needed` bytes fit in this process."""
        return self.here is None or needed <= self.here

    def workers_have(self, needed: int) -> bool:
        """Return whether `needed` bytes fit in each worker."""
        return self.worker is None or needed <= self.worker


LOG = logging.getLogger("dkl")
Array = NDArray[np.float64]
WORTHWHILE = 2**29
"""Bytes that this process would hold. Rows are shared out for memory: in ten dimensions each of two workers needs a quarter of all
rows from the other for every product, and on one machine both take longer than this process alone
(benchmarks/system/basis_on_workers.md)."""


def passes_on(
    session: Session, *, room: Room | None = None, least: int | None = None
) -> Callable[[sparse.csr_array, int], Passes]:
    """Return a function that makes `Passes` of a matrix and a block of k columns, here or on workers.

    On the session's workers if they take `least` bytes here (WORTHWHILE) or more and each worker surely can hold a
    share, or if they do not fit here.
    """
    room, least = room or Room(), WORTHWHILE if least is None else least

    def make(matrix: sparse.csr_array, k: int) -> Passes:
        sizes = matrix.shape[0], k, matrix.nnz
        here = filter_bytes(*sizes)
        if session.is_distributed and not (room.has(here) and here < least):
            share_fits = room.workers_have(most_owner_bytes(*sizes, len(waiting.workers(session))))
            if share_fits or not room.has(here):
                return SharedPasses(matrix, k, session, room)
        return PassesHere(matrix, k)

    return make


class SharedPasses:
    """`Passes` on the workers of a cluster.

    Raises WorkersLostError without workers, or if some are lost in each of `waiting.attempts()`; MemoryBudgetError
    where a worker has no room for its share, before it is sent.
    """

    def __init__(self, matrix: sparse.csr_array, k: int, session: Session, room: Room | None = None) -> None:
        self.matrix, self.k, self.session, self.room = matrix, k, session, room or Room()
        # An order in which neighbors are near: a share of consecutive rows then needs few rows of others.
        self.order, self.top = band_order(matrix), spectrum_top(matrix)
        self.owners: RowOwners | None = None
        self.standing: Standing | None = None
        self.silence = waiting.Silence()

    def advance(self, count: int) -> Ritz:
        """Make one pass over all rows; where an owner is lost in it, repeat it by new ones."""
        for attempt in waiting.attempts():
            if attempt:
                LOG.warning("a worker was lost: a pass for eigenvectors is made again")
            try:
                if self.owners is None:
                    self.owners = RowOwners(
                        self.matrix, self.order, self.k, self.top, self.session, self.standing, self.room, self.silence
                    )
                found = self.owners.advance(count)
                # After each pass: a lost worker costs one, and the block is small next to the work that it took.
                self.standing = self.owners.standing()
                return found
            except StateLost:
                self.close()
        raise AssertionError("waiting.attempts() ends with WorkersLostError")

    def vectors(self, count: int) -> Array:
        """Return the first `count` columns (n, count) of the block after the last pass."""
        assert self.standing is not None
        return put_together([self.standing.block[:, :count]], self.order, count)

    def close(self) -> None:
        """Have the workers forget the rows."""
        if self.owners is not None:
            self.owners.close()
            self.owners = None


class RowOwners(Owners):
    """A `FilteredRows` on each worker. Raises StateLost where one is lost, from its making on."""

    def __init__(
        self,
        matrix: sparse.csr_array,
        order: NDArray[np.int32],
        k: int,
        top: float,
        session: Session,
        standing: Standing | None,
        room: Room,
        silence: waiting.Silence,
    ) -> None:
        self.n, self.k = len(order), k
        groups, addresses = row_groups(len(order)), silence.answering(session)
        shares = share(len(groups), len(addresses))
        super().__init__(session, uuid.uuid4().hex, addresses[: len(shares)], silence)
        bounds = (*(groups[part.start][0] for part in shares), len(order))
        try:
            for index, address in enumerate(self.addresses):
                # One after the other: this process holds one copy of one part next to the matrix.
                rows = rows_in_order(matrix, order, bounds, index)
                self._check_room(rows, address, room)
                begun = standing and replace(standing, block=standing.block[bounds[index] : bounds[index + 1]])
                part = session.send(AlignedValue((rows, begun)), [address], silence=silence)
                self._wait([self._submit(index, make_rows, self.key, part, k, top, self.addresses)])
        except BaseException:
            self.close()
            raise

    def _check_room(self, rows: OrderedRows, address: str, room: Room) -> None:
        needed = owner_bytes(rows.n_own, self.k, len(rows.data), rows.n_halo)
        owners, remedy = len(self.addresses), self.session.more_memory()
        check_room(needed, room.worker, owners, "eigenvectors", address, remedy)

    def advance(self, count: int) -> Ritz:
        """Make one pass; return the values of the first owner, as all find the same."""
        found: Ritz = self._wait(self._all(advance, count))[0]
        return found

    def standing(self) -> Standing:
        """Collect the state of the owners; this process holds one part at a time next to the whole."""
        block, lo = np.empty((self.n, self.k)), 0
        for k in range(len(self.addresses)):
            part = self._wait([self._submit(k, standing, self.key)])[0]
            block[lo : lo + len(part.block)] = part.block
            lo += len(part.block)
        return Standing(block, part.filter)


def make_rows(key: str, part: AlignedValue, k: int, top: float, addresses: list[str]) -> None:
    """Task: hold rows, and their state if they have one, with as many threads as the worker has."""
    from distributed import get_worker

    rows, begun = part.value
    exchange = Exchange(key, rows.index, addresses)
    slab_worker.keep(key, FilteredRows(rows, k, top, exchange, get_worker().state.nthreads, begun))


def advance(key: str, count: int) -> Ritz:
    """Task: one pass, together with the other owners."""
    with slab_worker.using(key) as owner:
        # A task that waits for its peers must not hold a thread of Dask: the peers' tasks may be queued behind it.
        slab_worker.leave_the_slot()
        with one_blas_thread():
            found: Ritz = owner.advance(count)
            return found


def standing(key: str) -> Standing:
    """Task: return the state of the rows, not copied: no pass is made before the block has been sent."""
    with slab_worker.using(key) as owner:
        return Standing(owner.block, owner.filter)


WORTHWHILE_PRODUCTS = 30_000_000
"""Minimum number of a matrix' stored entries for which products on workers pay."""

Product = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def product_on(session: Session, *, least: int = WORTHWHILE_PRODUCTS) -> Callable[[sparse.csr_array], Product] | None:
    """Return a function x -> A x of a CSR matrix A on the session's workers; None for threads.

    least: stored entries below which the product is scipy's, in this process.
    """
    if not session.is_distributed:
        return None

    def make(matrix: sparse.csr_array) -> Product:
        if matrix.nnz < least:
            return lambda x: matrix @ x
        return WorkerMatrix(matrix, session).product

    return make


class WorkerMatrix:
    """Row blocks of a matrix on the workers, cut so that each has about as many entries.

    The whole matrix stays in this process too, which takes over where a worker is lost. Raises WorkersLostError without
    workers.
    """

    def __init__(self, matrix: sparse.csr_array, session: Session) -> None:
        self.matrix, self.session, self.client = matrix, session, session.client
        addresses = waiting.workers(session)
        # Cut by entries, not rows: a product takes as long as the worker with the most of them.
        shares = np.linspace(0, matrix.nnz, len(addresses) + 1)[1:-1]
        cuts = [0, *np.searchsorted(matrix.indptr, shares).tolist(), matrix.shape[0]]
        self.blocks: list[tuple[str, Any]] = []
        for address, lo, hi in zip(addresses, cuts[:-1], cuts[1:], strict=True):
            if hi > lo:
                try:
                    self.blocks.append((address, session.send(matrix[lo:hi], [address])))
                except StateLost:
                    self.blocks = []
                    break

    def product(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A x for x (n,): scipy's bits, since every row is summed in the same order.

        Never raises for a lost worker: from then on the driver multiplies by itself.
        """
        if self.blocks:
            try:
                # One transfer to each worker, outside the task graph: vectors in tasks would pass through the scheduler.
                sent = self.session.send(x)
                futures = [
                    self.session.submit(_times, block, sent, workers=[address]) for address, block in self.blocks
                ]
                return np.concatenate(waiting.gather(self.session, futures))
            except Exception as error:
                from dkl.blocks.slabs.slab_worker import is_cluster_failure

                if not is_cluster_failure(error):
                    raise
                self.blocks = []  # a worker is lost: the driver, which has the matrix, multiplies from here on
        return self.matrix @ x


def _times(block: sparse.csr_array, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return block @ x

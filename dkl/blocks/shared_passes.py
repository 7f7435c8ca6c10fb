"""Filtered subspaces with the rows of the matrix and of the block shared out over the workers of a cluster.

Between products rows stay where they are: an owner sends another what that one's entries meet, and sums of k x k numbers. This process has
the matrix, which it hands out once, and collects what it is asked for. Where a worker is lost the passes are made again on the
workers that there are: they begin from the same random block, and give the same bits on any number of workers.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks import slab_worker, waiting
from dkl.blocks.aligned import Aligned
from dkl.blocks.exchange import Exchange
from dkl.blocks.owners import Owners
from dkl.blocks.session import Session
from dkl.errors import StateLost
from dkl.linalg.filtered_rows import FilteredRows, Passes, PassesHere, Ritz
from dkl.linalg.lowest_subspace import spectrum_top
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.ordered_rows import band_order, put_together, row_groups, rows_in_order
from dkl.linalg.smooth_basis import filter_bytes
from dkl.linalg.tree_sum import share

Out = TypeVar("Out")
LOG = logging.getLogger("dkl")
Array = NDArray[np.float64]
WORTHWHILE = 2**29
"""Bytes that this process would hold. Rows are shared out for memory: in ten dimensions each of two workers needs a quarter of all
rows from the other for every product, and on one machine both take longer than this process alone (benchmarks/basis_on_workers.md)."""


def passes_on(session: Session, *, least: int = WORTHWHILE) -> Callable[[sparse.csr_array, int], Passes]:
    """What makes `Passes` of a matrix and a block of k columns: on the session's workers where it takes `least` bytes, or here."""

    def make(matrix: sparse.csr_array, k: int) -> Passes:
        shared = session.is_distributed and filter_bytes(matrix.shape[0], k, matrix.nnz) >= least
        return SharedPasses(matrix, k, session) if shared else PassesHere(matrix, k)

    return make


class SharedPasses:
    """`Passes` on the workers. WorkersLostError where there are none, or some are lost in each of `waiting.attempts()`."""

    def __init__(self, matrix: sparse.csr_array, k: int, session: Session) -> None:
        self.matrix, self.k, self.session = matrix, k, session
        self.order, self.top, self.made = band_order(matrix), spectrum_top(matrix), 0
        self.owners: RowOwners | None = None

    def advance(self, count: int) -> Ritz:
        """One pass over all rows."""
        found = self._kept(lambda owners: owners.advance(count))
        self.made += 1
        return found

    def vectors(self, count: int) -> Array:
        """(n, count) of the block."""
        return self._kept(lambda owners: put_together(owners.parts(count), self.order, count))

    def close(self) -> None:
        """Have the workers forget the rows."""
        if self.owners is not None:
            self.owners.close()
            self.owners = None

    def _kept(self, ask: Callable[[RowOwners], Out]) -> Out:
        """What the owners answer; where one is lost, what new ones answer that have made the passes again."""
        for attempt in waiting.attempts():
            if attempt:
                LOG.warning("a worker was lost: %d passes for eigenvectors are made again", self.made)
            try:
                if self.owners is None:
                    self.owners = RowOwners(self.matrix, self.order, self.k, self.top, self.session)
                    for _ in range(self.made):
                        self.owners.advance(1)
                return ask(self.owners)
            except StateLost:
                self.close()
        raise AssertionError("waiting.attempts() ends with WorkersLostError")


class RowOwners(Owners):
    """A `FilteredRows` on each worker. Raises StateLost where one is lost, from its making on."""

    def __init__(
        self, matrix: sparse.csr_array, order: NDArray[np.int32], k: int, top: float, session: Session
    ) -> None:
        groups, addresses = row_groups(len(order)), waiting.workers(session)
        shares = share(len(groups), len(addresses))
        super().__init__(session, uuid.uuid4().hex, addresses[: len(shares)])
        bounds = (*(groups[part.start][0] for part in shares), len(order))
        try:
            for index, address in enumerate(self.addresses):
                # One after the other: this process holds one copy of one part beside the matrix.
                rows = session.send(Aligned(rows_in_order(matrix, order, bounds, index)), [address])
                self._wait([self._submit(index, make_rows, self.key, rows, k, top, self.addresses)])
        except BaseException:
            self.close()
            raise

    def advance(self, count: int) -> Ritz:
        """One pass: all owners find the same values."""
        found: Ritz = self._wait(self._all(advance, count))[0]
        return found

    def parts(self, count: int) -> Iterator[Array]:
        """The first columns of the block, owner by owner: one part at a time is here."""
        for k in range(len(self.addresses)):
            yield self._wait([self._submit(k, part, self.key, count)])[0]


def make_rows(key: str, rows: Aligned, k: int, top: float, addresses: list[str]) -> None:
    """Task: hold these rows, with as many threads as the worker has."""
    from distributed import get_worker

    exchange = Exchange(key, rows.value.index, addresses)
    slab_worker.keep(key, FilteredRows(rows.value, k, top, exchange, get_worker().state.nthreads))


def advance(key: str, count: int) -> Ritz:
    """Task: one pass, together with the other owners."""
    with slab_worker.using(key) as owner:
        slab_worker.leave_the_slot()
        with one_blas_thread():
            found: Ritz = owner.advance(count)
            return found


def part(key: str, count: int) -> Array:
    """Task: the first columns of the block on these rows."""
    with slab_worker.using(key) as owner:
        return np.ascontiguousarray(owner.block[:, :count])

"""Products of a sparse matrix with vectors, its rows shared out over the workers of a cluster.

For the certificate's eigenvalue: a Lanczos step is one product, hence one task a worker. Below `WORTHWHILE` entries the
driver is faster than a round through the scheduler: scipy multiplies about 10^9 entries a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.errors import StateLost

WORTHWHILE = 30_000_000
"""Minimum number of a matrix' stored entries for which products on workers pay."""

Product = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def product_on(session: Session, *, least: int = WORTHWHILE) -> Callable[[sparse.csr_array], Product] | None:
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

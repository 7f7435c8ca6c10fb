"""Numbers of bytes that Dask should count for our objects.

It looks neither into dataclasses nor into scipy's sparse arrays. Loaded by Dask itself, in every process, through the
entry point `dask.sizeof`. Without it a worker would take a graph of gigabytes for a few bytes, and never spill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def register(sizeof: Any) -> None:
    """Add the types that are sent between processes here to Dask's `sizeof` dispatch; lazily, so that nothing is imported."""

    @sizeof.register_lazy("scipy")
    def register_sparse() -> None:
        from scipy import sparse

        @sizeof.register(sparse.csr_array)
        def size_of_sparse(matrix: csr_array) -> int:
            return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)

    @sizeof.register_lazy("dkl")
    def register_own() -> None:
        from dkl.blocks.slabs.sums_exchange import PhaseSums

        @sizeof.register(PhaseSums)
        def size_of_sums(sums: Any) -> int:
            return sum(vector.nbytes for vector in [*sums.partials.values(), *sums.rows.values()])

        from dkl.linalg.slabs.small_systems import SmallSystems

        @sizeof.register(SmallSystems)
        def size_of_systems(systems: object) -> int:
            return sum(getattr(systems, name).nbytes for name in SmallSystems.__dataclass_fields__)

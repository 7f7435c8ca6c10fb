"""The model of a run in a smooth basis, read to transform rows without a fit's imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.run_arrays import check_lengths, read_points, trained_on
from dkl.estimators.qsdp.basis.settings import BasisSettings
from dkl.linalg.graph.laplacian import Similarity
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

PARTS = ("rows", "basis")
"""Parts of a run that are kept before the solver starts."""


def read_model(run: RunStore) -> tuple[Rows, dict[str, NDArray]]:
    """Read the rows (n, d) and the model's arrays; StoreError for parts that do not fit together."""
    found, where = run.read_arrays("model"), f"{run.path}/model"
    n, m = trained_on(run)[0], len(found["Y"])
    what = "a model whose parts do not fit together"
    check_lengths(run, "model", found, what, where, sample=n, basis=m, other=m)
    rows = read_points(run.read_arrays("rows"), f"{run.path}/rows")
    if rows.shape != trained_on(run):
        raise StoreError("rows of another shape", where=f"{run.path}/rows", got=rows.shape)
    return rows, found


def read_similarity(run: RunStore, settings: BasisSettings) -> Similarity:
    """Read the similarity by which unseen rows are means of others; the basis itself is not read."""
    return similarity_of(run.read_array("basis/widths"), trained_on(run)[0], settings, run)


def similarity_of(widths: NDArray, n: int, settings: BasisSettings, run: RunStore) -> Similarity:
    """Restore the similarity from the stored widths of a run of n rows; StoreError on a wrong shape."""
    if widths.shape not in ((1,), (n,)):
        what = "not the widths of a similarity"
        raise StoreError(what, where=f"{run.path}/basis/widths", got=widths.shape, wanted=f"1 or {n}")
    return Similarity(widths, neighbors_of(settings, n))


def neighbors_of(settings: BasisSettings, n: int) -> int:
    """Return the number of neighbors of a row among n in the graph."""
    return max(1, min(settings.n_neighbors, n - 1))


def is_posed(run: RunStore) -> bool:
    """Return whether rows and basis are stored, judged by the names and sizes of their files."""
    return _is_there(run) and posed_damage(run) is None


def posed_damage(run: RunStore, *, whole: bool = False) -> StoreError | None:
    """Return what is wrong with stored rows and basis; None if intact or missing. whole: read all bytes."""
    if not _is_there(run):
        return None
    try:
        for part in PARTS:
            run.check_part(part, whole=whole)
    except StoreError as error:
        return error
    return None


def _is_there(run: RunStore) -> bool:
    return all((run.path / part).exists() for part in PARTS)

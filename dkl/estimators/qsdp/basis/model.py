"""The model of a run in a smooth basis, read to transform rows without a fit's imports; and the arrays of such runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.run_arrays import check_lengths, declared_points, read_points, trained_on
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.estimators.qsdp.settings import BasisSettings
from dkl.linalg.graph.laplacian import Similarity
from dkl.stores.checkpoints import vectors_of
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
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
    # As `build_graph` takes them: a row has no more neighbors than there are others.
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
    # Names alone: `dkl info` of a run of many GB must not read it.
    return all((run.path / part).exists() for part in PARTS)


NUMBER = ("float64",)

STATES = Arrays(
    vectors_of("engine", "engine", "R of the point Y = R R', scaled, and of that of the least gap; of hard constraints V, S, multipliers."),
    files={
        "engine/engine-*/MANIFEST.json": "The low-rank method under way: numbers that it resumes from, its rows of the history, and "
        "the shapes of its arrays."
    },
)  # fmt: skip

SHARED = (
    *STATES,
    *COLUMN_ARRAYS,
    *declared_points("rows", "sample", "The rows that were learned from"),
    StoredArray(
        "basis/widths",
        ("width",),
        NUMBER,
        "Of the similarity by which unseen rows are means of others: one, or each row's.",
    ),
    StoredArray("model/Y", ("basis", "other"), NUMBER, "The kernel is Q Y Q'."),
    StoredArray("model/embedding", ("sample", "component"), NUMBER, "Coordinates of the rows."),
    StoredArray(
        "model/dual",
        ("term",),
        NUMBER,
        "z of the certificate, of hard constraints their multipliers. Earlier runs by the low-rank solver have none: it is twice the "
        "residual there.",
        optional=True,
    ),
)
"""Arrays of every run of these learners."""

EIGENVECTORS = StoredArray(
    "model/Q", ("sample", "basis"), NUMBER, "Hard constraints: eigenvectors of the kernel.", optional=True
)
EDGES = StoredArray("basis/edges", ("edge", "end"), INTEGERS, "Of the graph, each once, the smaller row first.")

SMOOTH = (
    StoredArray("basis/Q", ("sample", "basis"), NUMBER, "The smoothest eigenvectors of the graph's Laplacian."),
    StoredArray("basis/values", ("basis",), NUMBER, "Their eigenvalues, ascending."),
    StoredArray("basis/found", ("one",), NUMBER, "The largest |L q - value q| over |L| when they were found."),
)
"""Arrays of the basis of smooth eigenvectors."""

PROPAGATION = Arrays(
    *SHARED,
    *(replace(one, optional=True, doc=f"Of soft pairs: {one.doc}") for one in SMOOTH),
    replace(EDGES, optional=True, doc=f"Of hard pairs: {EDGES.doc}"),
    StoredArray(
        "basis/couplings",
        ("edge",),
        NUMBER,
        "Of hard pairs: entries of the graph's normalized Laplacian, with the other sign; its diagonal is 1 of rows with an edge.",
        optional=True,
    ),
    StoredArray("basis/must_link", ("must", "end"), INTEGERS, "Rows of pairs that belong together."),
    StoredArray("basis/cannot_link", ("cannot", "end"), INTEGERS, "Rows of pairs that belong apart."),
    StoredArray(
        "basis/weights",
        ("pair",),
        NUMBER,
        "Of soft pairs: weights of the must-links and then of the cannot-links.",
        optional=True,
    ),
    StoredArray(
        "held_out/factor",
        ("basis", "column"),
        NUMBER,
        "Quality: R of the kernel Q R R' Q' without the held-out pairs.",
        optional=True,
    ),
    StoredArray(
        "held_out/points",
        ("point", "column"),
        NUMBER,
        "Quality, of hard pairs: R of the kernel R R' without the held-out pairs, a row for those that the other must-links join.",
        optional=True,
    ),
    StoredArray("held_out/dual", ("term_left",), NUMBER, "Quality: z of that kernel's certificate.", optional=True),
    StoredArray("held_out/relative_gap", ("one",), NUMBER, "Quality: its relative gap.", optional=True),
    StoredArray(
        "held_out/infeasibility", ("one",), NUMBER, "Quality, of hard pairs: its infeasibility.", optional=True
    ),
    StoredArray(
        "held_out/min_eigenvalue",
        ("one",),
        NUMBER,
        "Quality, of hard pairs: the eigenvalue of S by which it is proven.",
        optional=True,
    ),
    EIGENVECTORS,
    files=STATES.files,
)
"""Arrays of `LaplacianKernelLearner`."""

UNFOLDING = Arrays(
    *SHARED,
    *(replace(one, optional=True, doc=f"Of soft distances: {one.doc}") for one in SMOOTH),
    EDGES,
    StoredArray("basis/squared", ("edge",), NUMBER, "Squared distances of their rows."),
    StoredArray("basis/side", ("sample", "class"), NUMBER, "Colored: a factor of the kernel of labels.", optional=True),
    EIGENVECTORS,
    StoredArray(
        "model/cliques",
        ("member",),
        INTEGERS,
        "Hard distances: rows of cliques of neighbors, one clique after the other; the bound is of kernels on the face that they leave.",
        optional=True,
    ),
    StoredArray("model/clique_sizes", ("clique",), INTEGERS, "Hard distances: rows in each clique.", optional=True),
    files=STATES.files,
)
"""Arrays of `MaximumVarianceUnfolding`."""

"""`SpectralEmbedding` and `SpectralClustering` beside scikit-learn's: `python -m benchmarks.system.spectral [SET | KIND,N ...]`.

    python -m benchmarks.system.spectral wine digits          # sets: clusters, and how they agree with the classes
    python -m benchmarks.system.spectral plane,1e4 fit,roll,1e4    # rows that are drawn: eigenvectors of one graph, whole fits of clusters

Of a set or of drawn rows (`plane` a square, `roll` a Swiss roll, `gauss` 10 dimensions, `images` digits copied with noise) first the
eigenvectors of one affinity, that of dkl's neighbour graph: CPU seconds by dkl and by scikit-learn's arpack and amg (pyamg, where it is
installed), amg also to dkl's tolerance, the largest residual over |L| of each, and of sets the sine of the largest angle between the
subspaces. Then clusters from the rows, each with its own 10-nearest-neighbour graph. A Markdown row each. A peer is left out where it
took more than PEER seconds on a third of the rows; `--peers=amg` runs the peers named, however long they take, and `--peers=` none.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn.cluster
import sklearn.manifold
from scipy import sparse
from sklearn.datasets import load_digits, make_swiss_roll

import dkl
from benchmarks.pairwise.pair_defaults import rows_of
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.graph.laplacian import laplacian_matrix

COUNT, PEER = 10, 2.0
SETS = ("wine", "digits", "a4a", "usps")
DRAWN = tuple(
    f"{kind},{n}" for kind in ("plane", "roll", "gauss", "images") for n in ("1e3", "3e3", "1e4", "3e4", "1e5")
)
FITS = tuple(f"fit,{kind},{n}" for kind in ("roll", "gauss", "images") for n in ("1e3", "3e3", "1e4", "3e4"))
PEERS = {"arpack": {}, "amg": {}, "amg to 1e-8": {"eigen_tol": 1e-8}}


def drawn(kind: str, n: int) -> np.ndarray:
    """Rows (n, d), by seed 0."""
    rng = np.random.default_rng(0)
    if kind == "plane":
        return rng.random((n, 2))
    if kind == "roll":
        return make_swiss_roll(n, random_state=0)[0]
    if kind == "gauss":
        return rng.standard_normal((n, 10))
    digits = load_digits().data
    return digits[rng.integers(0, len(digits), n)] + 4 * rng.standard_normal((n, 64))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """(what it gives, CPU seconds)."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = work()
    return found, time.process_time() - start


def affinity_of(X: Any, **how: Any) -> sparse.csr_array:
    """W of dkl's graph."""
    L = build_graph(X, laplacian="unnormalized", **how).laplacian
    W = sparse.csr_array(sparse.diags_array(L.diagonal()) - L)
    W.eliminate_zeros()
    return W


def peer_vectors(W: sparse.csr_array, solver: str, count: int) -> tuple[Any, float]:
    """(scikit-learn's coordinates, or None; CPU seconds)."""
    how = {"n_components": count, "eigen_solver": solver.split()[0], "random_state": 0, "drop_first": False}
    try:
        return timed(lambda: sklearn.manifold.spectral_embedding(sparse.csr_matrix(W), **how, **PEERS[solver]))
    except (ValueError, RuntimeError):  # pyamg is not there, or LOBPCG breaks down
        return None, np.nan


def residual_of(L: sparse.csr_array, found: np.ndarray, degrees: np.ndarray) -> float:
    """The largest |L q - theta q| over |L| of the best pairs in the span of coordinates, which are D^(-1/2) q."""
    Q = np.linalg.qr(found * np.sqrt(degrees)[:, None])[0]
    values, turn = np.linalg.eigh(Q.T @ (L @ Q))
    Q = Q @ turn
    return float(np.linalg.norm(L @ Q - Q * values, axis=0).max() / abs(L).sum(axis=1).max())


def graph_row(kind: str, n: int, peers: tuple[str, ...]) -> tuple[str, dict[str, float]]:
    """(a line of the table of eigenvectors, seconds of each peer)."""
    W = affinity_of(drawn(kind, n), sigma="local", joined_above=COUNT)
    L, degrees = laplacian_matrix(W)[0], np.asarray(W.sum(axis=0)).ravel()
    found, own = timed(lambda: smoothest(L, COUNT))
    cells, seconds = [], {}
    for solver in PEERS:
        theirs, seconds[solver] = peer_vectors(W, solver, COUNT) if solver in peers else (None, np.nan)
        cells.append("" if theirs is None else f"{seconds[solver]:.2f} ({residual_of(L, theirs, degrees):.0e})")
    best = np.nanmin([*seconds.values(), np.inf])
    ratio = f"{own / best:.2f}" if best < np.inf else ""
    head = (kind, f"{n:,}", found.method, f"{own:.2f} ({found.residual:.0e})")
    return "| " + " | ".join([*head, *cells, ratio]) + " |", seconds


def fit_row(kind: str, n: int, peers: tuple[str, ...]) -> tuple[str, dict[str, float]]:
    """(a line of the table of whole fits, seconds of each peer)."""
    X = drawn(kind, n)
    _, own = timed(lambda: dkl.SpectralClustering(COUNT, random_state=0, n_jobs=1).fit(X))
    seconds, cells = {}, []
    for solver in ("arpack", "amg"):
        how: dict[str, Any] = {"affinity": "nearest_neighbors", "eigen_solver": solver, "random_state": 0}
        peer = sklearn.cluster.SpectralClustering(COUNT, **how)
        seconds[solver] = timed(lambda peer=peer: peer.fit(X))[1] if solver in peers else np.nan
        cells.append("" if np.isnan(seconds[solver]) else f"{seconds[solver]:.2f}")
    best = np.nanmin([*seconds.values(), np.inf])
    ratio = f"{own / best:.2f}" if best < np.inf else ""
    return "| " + " | ".join([kind, f"{n:,}", f"{own:.2f}", *cells, ratio]) + " |", seconds


def set_row(name: str) -> str:
    """A line of the table of sets."""
    X, y, clusters = rows_of(name)
    W = affinity_of(X)
    mine, own = timed(lambda: dkl.SpectralEmbedding(clusters, affinity="precomputed").fit(W).embedding_)
    theirs, other = timed(
        lambda: sklearn.manifold.spectral_embedding(sparse.csr_matrix(W), n_components=clusters, random_state=0)
    )
    one, two = (np.linalg.qr(found)[0] for found in (mine, theirs))
    angle = np.linalg.norm(two - one @ (one.T @ two), 2)
    found, fitted = timed(lambda: dkl.SpectralClustering(clusters, random_state=0, n_jobs=1).fit_predict(X))
    peer = sklearn.cluster.SpectralClustering(clusters, affinity="nearest_neighbors", random_state=0)
    wanted, peer_fitted = timed(lambda: peer.fit_predict(X))
    indices = [dkl.adjusted_rand_index(y, labels) for labels in (found, wanted)]
    cells = (
        name, f"{len(y):,}", clusters, f"{angle:.1e}", f"{own:.2f}", f"{other:.2f}", f"{own / other:.2f}",
        f"{indices[0]:.3f}", f"{indices[1]:.3f}", f"{fitted:.2f}", f"{peer_fitted:.2f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


HEADS = {
    "set": "set | n | k | sine | s, dkl | s, sklearn | ratio | ARI, dkl | ARI, sklearn | s, dkl | s, sklearn",
    "graph": "rows | n | dkl's method | s, dkl | s, arpack | s, amg | s, amg to 1e-8 | ratio to the best",
    "fit": "rows | n | s, dkl | s, arpack | s, amg | ratio to the best",
}


def main() -> None:
    """All of them, a table a kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*SETS, *DRAWN, *FITS], metavar="SET | KIND,N")
    parser.add_argument("--peers", type=lambda text: text.split(","), help=", ".join(PEERS))
    asked = parser.parse_args()
    with warnings.catch_warnings():  # compiles; a graph's levels decide between both methods
        warnings.simplefilter("ignore")
        graph_row("gauss", 1000, tuple(PEERS)), graph_row("roll", 1000, ()), fit_row("gauss", 1000, ("amg",))
    table, before = "", {}
    for name in asked.names:
        kind = "fit" if name.startswith("fit,") else "graph" if "," in name else "set"
        if kind != table:
            table = kind
            print(f"\n| {HEADS[kind]} |\n|" + "---|" * (HEADS[kind].count("|") + 1), flush=True)
        if kind == "set":
            print(set_row(name), flush=True)
            continue
        rows, n = name.removeprefix("fit,").split(",")
        known = before.setdefault((kind, rows), {})
        quick = [solver for solver in PEERS if not known.get(solver, 0.0) > PEER]
        peers = tuple(quick if asked.peers is None else asked.peers)
        line, known = (fit_row if kind == "fit" else graph_row)(rows, int(float(n)), peers)
        before[kind, rows] = {solver: PEER + 1 if solver not in peers else known.get(solver, 0.0) for solver in PEERS}
        print(line, flush=True)


if __name__ == "__main__":
    main()

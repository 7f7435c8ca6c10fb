"""Texts of DataWarnings on a neighbor graph: rows that are cut off, and components."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.graph.graph_parts import NEGLIGIBLE, joining_width

if TYPE_CHECKING:
    from dkl.blocks.graph.neighbor_graph import Graph

_NAMED_ONLY = "the graph is connected by name only"


def isolated_text(graph: Graph) -> str:
    """Return the warning of rows without edges, or ""."""
    if not graph.isolated.size:
        return ""
    what = f"{graph.isolated.size:,} of {graph.n:,} patterns are isolated"
    first = f"first: row {graph.isolated[0]}"
    if graph.method == "precomputed":
        return f"{what}: they have no affinity ({first})"
    return f"{what}: all their similarities underflow at sigma = {graph.sigma:.4g} ({first}); scale X, or set sigma"


def width_text(cut: NDArray[np.int64], dist2: NDArray[np.float64], index: NDArray[np.int64], sigma: float) -> str:
    """Return the warning that one width cuts rows from the others. dist2, index: (n, k) neighbors."""
    return (
        f'sigma={sigma:.4g} cuts {_cut(cut, len(index))}; take sigma="local", or at least '
        f"{joining_width(dist2, index):.3g}"
    )


def affinity_text(cut: NDArray[np.int64], n: int) -> str:
    """Return the warning that the affinities that were passed cut rows from the others."""
    return f"the affinity cuts {_cut(cut, n)}; raise these weights"


def _cut(cut: NDArray[np.int64], n: int) -> str:
    what = f"{cut.size:,} of {n:,} rows from the others"
    return f"{what} (weights below {NEGLIGIBLE:.0e} of their degrees; first: row {cut[0]}): {_NAMED_ONLY}"


def joined_text(graph: Graph) -> str:
    """Return the warning that components were joined, or ""."""
    if not graph.n_joined:
        return ""
    edges = f"{graph.n_joined:,} shortest edges" if graph.n_joined > 1 else "shortest edge"
    return f"the neighbor graph had {graph.parts}, joined by the {edges} between them; {parts_remedy(graph)}"


def parts_text(graph: Graph, so: str) -> str:
    """Return the warning that a graph has several components. so: the consequence of that, as text."""
    return f"the neighbor graph has {graph.parts}: {so}; {parts_remedy(graph)}"


def parts_remedy(graph: Graph) -> str:
    """Return the advice on how to get fewer components."""
    if graph.method == "precomputed":
        return "give affinities between them"
    if graph.most_copies > graph.n_neighbors:
        return f"take n_neighbors above {graph.most_copies - 1:,}, the copies of a row, or drop these"
    return "raise n_neighbors"

"""The neighbor graph of the rows that pairs are of."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from dkl.blocks.graph.neighbor_graph import Graph, build_graph, graph_of
from dkl.blocks.session import Session
from dkl.errors import DataWarning
from dkl.estimators.base.rules import width_rule
from dkl.estimators.pairwise.settings import PairwiseSettings

if TYPE_CHECKING:
    from dkl.linalg.rows.row_types import Rows


def graph_for(rows: Rows, session: Session, settings: PairwiseSettings, *, is_affinity: bool) -> Graph:
    """Return the graph of checked rows (n, d), or of an affinity (n, n), and warn of too few rows, from the caller of `fit`."""
    if is_affinity:
        return graph_of(rows, laplacian=settings.laplacian, warns_of_cuts=False)
    others = int(rows.shape[0]) - 1
    if settings.n_neighbors > others:
        warnings.warn(
            f"n_neighbors={settings.n_neighbors}, but a pattern has {others} others: all of them are taken",
            DataWarning,
            stacklevel=3,
        )
    return build_graph(
        rows,
        n_neighbors=min(settings.n_neighbors, others),
        sigma=width_rule(settings.sigma, "average"),
        warns_of_cuts=False,  # the pairs join what weights cut
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        session=session,
    )

"""`dkl verify` of a kernel from pairs in the basis of smooth eigenvectors: graph, basis, objective, gap and embedding once more.

f = sum over the diagonal, must-links and cannot-links of w_ij (K_ij - t_ij)^2,    t = 1, 1 and 0; w = 1 on the diagonal
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dkl.errors import StoreError
from dkl.estimators.common.rules import width_rule
from dkl.estimators.laplacian.settings import PropagationSettings
from dkl.runs import recomputed_basis as recomputed
from dkl.runs.comparison import Comparison
from dkl.runs.recomputed import neighbor_graph, widths_apart
from dkl.stores.run import RunStore


def claims(run: RunStore, settings: PropagationSettings, budget: int) -> Iterator[Comparison]:
    """The report's numbers beside the same recomputed."""
    report = run.report()
    rows, basis, model = recomputed.read(run, budget)
    Q, n, m = basis["Q"], len(basis["Q"]), basis["Q"].shape[1]
    pairs = np.concatenate([basis["must_link"], basis["cannot_link"]])
    if pairs.shape[1:] != (2,) or len(pairs) != len(basis["weights"]) or not ((pairs >= 0) & (pairs < n)).all():
        raise StoreError("not weighted pairs of rows", where=f"{run.path}/basis")
    graph = neighbor_graph(
        rows, settings.n_neighbors, width_rule(settings.sigma, "local"), "normalized", warns_of_cuts=False
    )
    yield Comparison("widths of the similarity", 0.0, widths_apart(basis["widths"], graph.similarity.widths), 1e-12)
    yield from recomputed.of_basis(report, basis, graph.laplacian)
    yield Comparison("must-links", float(report["n_must"]), float(len(basis["must_link"])), 0.0)
    yield Comparison("cannot-links", float(report["n_cannot"]), float(len(basis["cannot_link"])), 0.0)
    ends = np.concatenate([np.repeat(np.arange(n)[:, None], 2, axis=1), pairs])
    weights = np.sqrt(np.concatenate([np.ones(n), basis["weights"]]))
    targets = weights * np.concatenate([np.ones(n + len(basis["must_link"])), np.zeros(len(basis["cannot_link"]))])
    squares = recomputed.Squares(Q, ends, False, weights, targets, np.zeros((m, m)))
    yield from recomputed.of_solution(report, squares, model["Y"], model.get("dual"))
    yield from recomputed.of_embedding(report, basis, model, None)

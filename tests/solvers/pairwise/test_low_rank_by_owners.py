"""The factored solver with its rows shared out over owners: the bytes of one that has them all, from the start to the proof."""

import numpy as np
import pytest
from owners_on_threads import by_owners
from pairwise_cases import hard_rows
from repeats import but_for

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import make_problem
from dkl.problems.pairwise import terms
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise.low_rank import solve_to_gap

N = 450
HOW = {"target_gap": 1e-4, "seed": 3, "max_iter": 100}


@pytest.fixture(params=but_for([False], [False, True]), ids=["plain", "weighted"])
def given(request, monkeypatch):
    """(Laplacian, targets, weights) of rows with duplicates, outliers and wrong pairs, with 8 groups of rows."""
    monkeypatch.setattr(terms, "LEAST_ROWS", 32)
    X, must, cannot = hard_rows(N, 1)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", session=Session.find(None, threads=1), warns_of_cuts=False
    )
    weights = np.random.default_rng(0).uniform(0.1, 2, len(must) + len(cannot)) if request.param else None
    problem = make_problem(graph.laplacian, dkl.Pairs(must, cannot, weights=weights), 100.0)
    return problem.laplacian, problem.targets, problem.weights


def part_of(given, rows):
    """These rows' problem."""
    (laplacian, targets, weights), own = given, slice(rows.lo, rows.hi)
    if weights is not None:
        weights = weights[targets.indptr[rows.lo] : targets.indptr[rows.hi]]
    return FactoredPairwise(laplacian[own], targets[own], 100.0, weights=weights, rows=rows)


@pytest.mark.parametrize(("owners", "threads"), but_for([(2, 1), (5, 2), (8, 1)], [(2, 1), (3, 2), (5, 2), (8, 1)]))
def test_the_bits_do_not_depend_on_the_number_of_owners(given, owners, threads):
    laplacian, targets, weights = given
    alone = FactoredPairwise(laplacian, targets, 100.0, weights=weights)
    begun = alone.start(12, 3)
    wanted = solve_to_gap(alone, begun, **HOW)
    assert (
        sum(row["relative_gap"] is not None for row in wanted.history) >= 2
        and wanted.certificate.relative_gap < 0.1
        and wanted.certificate.pair_lift.any()
    )

    def one(rows):
        problem = part_of(given, rows)
        assert problem.halo.size > 0
        return solve_to_gap(problem, begun[rows.lo : rows.hi], **HOW)

    parts = by_owners(N, owners, one, least=32, threads=threads)
    assert np.concatenate([part.factor for part in parts]).tobytes() == wanted.factor.tobytes()
    for name in ("lift", "pair_lift", "direction"):
        told = np.concatenate([getattr(part.certificate, name) for part in parts])
        assert told.tobytes() == getattr(wanted.certificate, name).tobytes(), name
    numbers = wanted.certificate.as_dict() | {"lift": 0}
    rows = [row | {"seconds": 0} for row in wanted.history]
    for part in parts:
        assert part.certificate.as_dict() | {"lift": 0} == numbers
        assert [row | {"seconds": 0} for row in part.history] == rows


def test_lines_are_those_of_all_rows(given, rng):
    """Against one owner, whose are held by Taylor slopes elsewhere."""
    V, D = (rng.standard_normal((N, 5)) for _ in range(2))

    def one(problem, rows):
        point, direction = (problem.padded(x[rows.lo : rows.hi]) for x in (V, D))
        line = problem.line(problem.at(point), direction)
        return line.coefficients, line.ld[: rows.n_own]

    laplacian, targets, weights = given
    whole = FactoredPairwise(laplacian, targets, 100.0, weights=weights)
    coefficients, product = one(whole, whole.rows)
    parts = by_owners(N, 3, lambda rows: one(part_of(given, rows), rows), least=32)
    assert {part[0] for part in parts} == {coefficients}
    assert np.concatenate([part[1] for part in parts]).tobytes() == product.tobytes()

"""Sums of phases among owners of slabs: the same bits in one round and in two, and fewer bytes in two of many owners."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dkl.blocks.memory_plan import plan_pairwise
from dkl.blocks.slabs import sums_exchange
from dkl.blocks.slabs.sums_exchange import AmongOwners, LocalSums, PhaseSums, fill_together
from dkl.linalg.rows.tree_sum import absorb, share, total

GROUPS, SIZE = 8, 1003


class Threads:
    """Owners that are threads: what each gives the others, and the numbers that it has sent."""

    def __init__(self, index: int, owners: int, given: dict[Any, Any], changed: threading.Condition) -> None:
        self.index, self.addresses, self.given, self.changed = index, [str(k) for k in range(owners)], given, changed
        self.sent = 0

    def swap(self, step: int, parts: dict[int, Any]) -> dict[int, Any]:
        with self.changed:
            for k, part in parts.items():
                self.given[step, self.index, k] = part
                self.sent += sum(v.nbytes for v in part[0].values()) if isinstance(part, tuple) else part.nbytes
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: all((step, k, self.index) in self.given for k in parts), 60)
            return {k: self.given[step, k, self.index] for k in parts}

    def __call__(self, step: int, part: Any) -> list[Any]:
        others = [k for k in range(len(self.addresses)) if k != self.index]
        given = self.swap(step, dict.fromkeys(others, part)) | {self.index: part}
        return [given[k] for k in range(len(self.addresses))]


def of_all(owners: int, one: Callable[[AmongOwners], Any]) -> tuple[list[Any], list[int]]:
    """(one(owner) of each owner, at the same time; how many bytes each has sent)."""
    given: dict[Any, Any] = {}
    changed = threading.Condition()
    peers = [Threads(k, owners, given, changed) for k in range(owners)]
    with ThreadPoolExecutor(owners) as pool:
        found = list(pool.map(lambda each: one(AmongOwners(each)), peers))
    return found, [each.sent for each in peers]


def combined(parts: list[PhaseSums]) -> tuple[list[sums_exchange.Combined], list[int]]:
    """(what each owner has then, how many bytes each has sent)."""
    return of_all(len(parts), lambda owner: owner.combine(parts[owner.index]))


@pytest.mark.parametrize("owners", [1, 2, 3, 5, 8])
def test_the_bits_are_those_of_the_tree(monkeypatch: pytest.MonkeyPatch, owners: int) -> None:
    rng = np.random.default_rng(owners)
    leaves = rng.standard_normal((GROUPS, SIZE)) * 10.0 ** rng.integers(-8, 8, (GROUPS, 1))
    whole: dict[Any, Any] = {}
    parts = []
    for groups in share(GROUPS, owners):
        parts.append(PhaseSums("v", 3, {}, {groups.start: leaves[groups.start, :4]}))
        for group in groups:
            absorb(parts[-1].partials, (0, group), leaves[group].copy())
            absorb(whole, (0, group), leaves[group].copy())
    wanted, sent = total([whole]), {}
    for worthwhile in (SIZE + 1, SIZE):  # one round, two rounds
        monkeypatch.setattr(sums_exchange, "WORTHWHILE", worthwhile)
        every, sent[worthwhile] = combined(parts)
        for each in every:
            assert each.sums.tobytes() == wanted.tobytes()
            assert sorted(each.rows) == [groups.start for groups in share(GROUPS, owners)]
    if owners > 2:  # their subtrees are one each, or two
        assert max(sent[SIZE]) <= 2 * 8 * SIZE * max(len(part.partials) for part in parts)
        assert max(sent[SIZE + 1]) >= (owners - 1) * 8 * SIZE


@pytest.mark.parametrize("owners", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_each_computes_its_share_of_much_and_all_of_little(
    monkeypatch: pytest.MonkeyPatch, owners: int, dtype: type
) -> None:
    rng = np.random.default_rng(owners)
    ends = np.concatenate(([0], np.cumsum(rng.integers(0, 6, 100))))  # of some items nothing
    wanted = rng.standard_normal(ends[-1]).astype(dtype)

    def one(owner: LocalSums | AmongOwners) -> tuple[NDArray, list[int]]:
        vector, computed = np.full(wanted.size, np.nan, dtype), []

        def compute(mine: range) -> None:
            computed.extend(mine)
            span = slice(ends[mine.start], ends[mine.stop])
            vector[span] = wanted[span]

        fill_together(owner, 5, compute, vector, ends)
        return vector, computed

    for worthwhile in (wanted.size + 1, wanted.size):
        monkeypatch.setattr(sums_exchange, "WORTHWHILE", worthwhile)
        found, sent = of_all(owners, one)
        assert all(vector.tobytes() == wanted.tobytes() for vector, _ in found)
        if owners == 1 or worthwhile > wanted.size:
            assert not any(sent) and all(items == list(range(100)) for _, items in found)
        else:
            assert sum((items for _, items in found), []) == list(range(100))
            assert sum(sent) == (owners - 1) * wanted.nbytes
        assert one(LocalSums())[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("owners", [2, 3, 5, 8])
@pytest.mark.parametrize("worthwhile", [SIZE + 1, SIZE])
def test_they_send_what_is_planned(monkeypatch: pytest.MonkeyPatch, owners: int, worthwhile: int) -> None:
    """An iteration has two phases."""
    monkeypatch.setattr(sums_exchange, "WORTHWHILE", worthwhile)
    parts = []
    for groups in share(GROUPS, owners):
        parts.append(PhaseSums("v", 0, {}))
        for group in groups:
            absorb(parts[-1].partials, (0, group), np.ones(SIZE))
    solved, ends = SIZE + 5, np.arange(SIZE + 6)  # entries of the targets, of a row each
    plan = plan_pairwise(
        500, 16 * GROUPS, "float64", laplacian_entries=0, target_entries=solved, dot_products=SIZE, processes=owners
    )
    assert plan.processes == owners

    def phase(owner: AmongOwners) -> None:
        owner.combine(parts[owner.index])
        fill_together(owner, 0, lambda _: None, np.zeros(solved), ends)

    assert 2 * sum(of_all(owners, phase)[1]) == pytest.approx(plan.exchanged_per_iteration, rel=0.01)

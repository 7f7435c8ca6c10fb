"""Memory that processes of fits take, over rows, chunks, ranks and limits, against the limit and the plan.

pytest -m slow -n0 tests/failures -k R15 prints of every point the largest resident memory of a whole process that works, as the system
counts it, over the limit (the least one that is accepted), and the plan over it; -k R17 of rows many times larger than the limit.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_points import Point, taken

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no peaks of processes here"),
]
MIB = 2**20
OWN = ("--workers", "2")
POINTS = {
    "regression": [
        Point("regression", n, rank, chunk)
        for n in (20_000, 80_000, 320_000)
        for chunk in (1500, 25_000)
        for rank in (20, 200)
    ],
    "pairwise": [
        Point("pairwise", n, rank, 0, tight)
        for n in (1000, 4000, 16_000)
        for rank in (16, 128)
        for tight in (True, False)
    ],
    "svc": [Point("svc", n, 0, 0, tight) for n in (500, 2000, 4000) for tight in (True, False)],
    "logdet": [Point("logdet", n) for n in (200, 1000)],
    "metric": [Point("metric", n) for n in (200, 1000)],
    # Of 20,000 rows no factor fits, and the eigenvectors are found by a filter.
    "mvu": [*(Point("mvu", n, rank) for n in (1000, 8000) for rank in (16, 64)), Point("mvu", 20_000, 16)],
    "laplacian": [Point("laplacian", n, 16) for n in (1000, 8000, 20_000)],
    "workers": [
        *(Point("regression", n, 200, 25_000, place=OWN) for n in (20_000, 320_000)),
        *(Point("pairwise", n, 64, place=OWN) for n in (1000, 8000)),
        Point("svc", 2000, place=OWN),
        Point("mvu", 20_000, 16, place=OWN),
    ],
}
WIDE = 16_000
"""Features of rows that no process could hold."""
BEYOND = {"one process": (("--threads", "1"), (25_600, 204_800)), "two workers": (OWN, (72_500, 580_000))}
"""Where, and how many of them."""


@pytest.mark.parametrize("group", POINTS)
def test_R15_R16_what_a_fit_takes(group, tmp_path, told):
    """R15: peak / limit <= 0.9. R16: plan / peak in 1 to 2. Where workers do the work the process that asks them is below 400 MiB."""
    wrong = []
    for point in POINTS[group]:
        found = taken(point, tmp_path)
        counts = {
            "points": 1,
            "plan/peak least": round(found.planned / found.peak, 3),
            "peak MB worst": found.peak // 10**6,
        }
        if found.limit:
            counts |= {
                "peak/limit worst": round(found.peak / found.limit, 3),
                "refusal s": round(found.refusal_seconds, 2),
            }
        if found.workers:
            counts["driver MiB worst"] = found.own // MIB
        told("R15, R16: memory", str(point) + (", workers" if found.workers else ""), counts)
        if found.planned < found.peak or (found.limit or found.peak) < found.peak:
            wrong.append((point, found))
    assert not wrong


@pytest.mark.parametrize(("place", "sizes"), BEYOND.values(), ids=BEYOND)
def test_R17_rows_that_no_process_could_hold(place, sizes, tmp_path, told):
    """Resident memory stays as n grows eightfold, to fifty times what all processes that work may take together: beside rows of
    128 kB some bytes a row are held."""
    peaks = []
    for n in sizes:
        found = taken(Point("regression", n, 20, 100, place=place), tmp_path, d=WIDE)
        assert found.limit is not None and found.peak <= found.limit
        peaks.append(found.peak)
        all_limits = found.limit * max(1, len(found.workers))
        told(
            "R17: rows beyond the memory",
            f"regression, {n} rows, {' '.join(place)}",
            {
                "rows/limits worst": round(n * 8 * WIDE / all_limits, 2),
                "peak MB worst": found.peak // 10**6,
                "limit MB": found.limit // 10**6,
                "client MB worst": found.own // 10**6,
            },
        )
    assert peaks[1] <= 1.1 * peaks[0] and all_limits < sizes[1] * 8 * WIDE / 50

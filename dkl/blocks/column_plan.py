"""Bytes of a pass over kernel columns and of the solve after it, from shapes and types alone."""

from __future__ import annotations

from math import log2

import numpy as np

from dkl.blocks.place import Place
from dkl.blocks.plan import PROCESS_BASE, Plan
from dkl.blocks.row_groups import n_groups


def plan_columns(
    n: int,
    n_features: int,
    n_columns: int,
    n_targets: int,
    dtype: str,
    place: Place,
    limit: int | None,
    *,
    block_rows: int,
    n_folds: int = 1,
    chunk_rows: int = 0,
    rows_in_place: bool = True,
    store_columns: bool = False,
    checkpoints: bool = False,
    may_use_disk: bool = False,
) -> Plan:
    """The plan with B in memory, or, where that does not fit and there is a folder, with B on disk, rows at a time.

    chunk_rows: of stored rows, which are read by whole chunks. rows_in_place: the rows stand in this process already.
    """

    def plan(panel: int | None) -> Plan:
        M, size = n_columns, np.dtype(dtype).itemsize
        groups = n_groups(n, block_rows)
        threads = min(place.threads, groups)
        height = M if panel is None else panel
        total = 8 * n_folds * height * M
        levels = int(log2(groups)) + 1
        rows = 8 * n_features * (block_rows + 2 * chunk_rows)
        items = {
            "rows being read": 0 if rows_in_place and not place.distributed else threads * rows,
            "kernel columns of a block": threads * (2 * min(block_rows, n) * M * size + 8 * M * n_features),
            "sums over rows": (threads + min(levels, groups)) * total,
            "a block's Gram matrix": threads * (4 if size == 4 else 8 if panel is not None else 0) * height * M,
            "targets": 8 * n * (n_targets + 1) * 3,
            "candidate points": 2 * 8 * M * n_features,
        }
        solve = 3 * 8 * M * M * threads
        if panel is None:
            items["solver"] = solve + (total if n_folds > 1 else 0)
        else:
            items["active set"] = solve // 4
        disk = {}
        if panel is not None:
            disk["Gram matrix"] = 8 * M * M
        if store_columns:
            disk["kernel columns"] = n * M * size
        if checkpoints:
            disk["checkpoints (1 and 1 in progress)"] = 2 * levels * total
        return Plan(
            placement="memory" if panel is None else "disk",
            processes=place.processes,
            threads=place.threads,
            base=PROCESS_BASE,
            items={name: count for name, count in items.items() if count},
            disk=disk,
            limit=limit,
            tasks_per_iteration=0,
            exchanged_per_iteration=0,
            shape={"n": n, "columns": M, "targets": n_targets, "folds": n_folds, "dtype": dtype, "panel": panel},
            mend=_mend(n_folds, may_use_disk),
        )

    chosen = plan(None)
    panel = n_columns
    while not chosen.fits and may_use_disk and n_folds == 1 and panel > 64:
        panel = -(-panel // 2)
        chosen = plan(panel)
    return chosen


def _mend(n_folds: int, may_use_disk: bool) -> str:
    ways = ["raise memory_limit", "lower n_columns"]
    if n_folds > 1:
        ways.append("give nu as a number (a fold of cross-validation takes as much again)")
    if not may_use_disk:
        ways.append("give work_dir, so that the Gram matrix can be kept on disk")
    return ", or ".join([", ".join(ways[:-1]), ways[-1]])

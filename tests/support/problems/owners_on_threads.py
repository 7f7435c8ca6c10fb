"""Owners of rows on threads of one process, and what they give each other."""

import threading
from concurrent.futures import ThreadPoolExecutor

from dkl.linalg.rows.shared_rows import SharedRows
from dkl.linalg.rows.tree_sum import row_groups, share


class Table:
    """What owners on threads give each other."""

    def __init__(self, count):
        self.parts, self.barrier = {}, threading.Barrier(count)
        self.count = count

    def of(self, index):
        return Seat(self, index)


class Seat:
    def __init__(self, table, index):
        self.table, self.index = table, index

    def __call__(self, step, part):
        self.table.parts[step, self.index] = part
        self.table.barrier.wait(60)
        return [self.table.parts[step, k] for k in range(self.table.count)]

    def swap(self, step, parts):
        for k, part in parts.items():
            self.table.parts[step, self.index, k] = part
        self.table.barrier.wait(60)
        return {k: self.table.parts[step, k, self.index] for k in parts}


def by_owners(n, owners, function, least=None, threads=1):
    """[function(rows)] of so many owners of n rows, at the same time."""
    groups = row_groups(n, least)
    shares = share(len(groups), owners)
    bounds, table = (*(groups[part.start][0] for part in shares), n), Table(len(shares))
    assert len(shares) == owners, "too few rows"

    def one(index):
        rows = SharedRows(bounds, index, table.of(index), threads=threads, groups=groups)
        try:
            return function(rows)
        except BaseException:
            table.barrier.abort()  # the others would wait
            raise
        finally:
            rows.close()

    with ThreadPoolExecutor(owners) as pool:
        return list(pool.map(one, range(owners)))

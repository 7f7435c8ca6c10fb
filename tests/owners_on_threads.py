"""Owners of rows on threads of one process, and what they give each other."""

import threading


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

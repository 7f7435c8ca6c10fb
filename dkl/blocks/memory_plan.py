"""Bytes before work: what each process will hold and what the disk will take, from shapes and dtypes alone.

Nothing here touches data or imports Dask. A plan that does not fit is refused by naming its worst item, what is needed,
what is allowed and the setting that helps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from dkl.blocks.rows.row_blocks import MEMORY_SHARE
from dkl.blocks.session import Session
from dkl.blocks.slabs.sums_exchange import in_ranges, worth_sharing
from dkl.blocks.workers import waiting
from dkl.errors import MemoryBudgetError
from dkl.linalg.rows.tree_sum import group_bounds, share, subtrees
from dkl.linalg.slabs.slab_ops import n_slabs, slab_width
from dkl.resources import format_bytes, machine_memory
from dkl.stores.arrays import rows_per_chunk

if TYPE_CHECKING:
    from dkl.stores.seals import Json

PROCESS_BASE = 390_000_000
"""Resident memory of a process that has imported everything and holds no data; measured 313 to 343 MB of whole fits of small data, and
365 where their functions were compiled in it, with pandas installed, which scikit-learn imports: at most 0.95 of this."""

SUMS_PER_PATTERN = 8.6
"""Dot products a pattern at the paper's 1.2 pairs a pattern; used when the pairs are not known yet."""


@dataclass(frozen=True)
class Plan:
    """Memory plan of a run: bytes, by name, that each process holds and that the run writes to disk.

    base, items             bytes of a process without data, and what it holds at once on top of that
    disk                    what the run writes at most

    placement               "memory", "disk" or "recomputed": where the large state is
    processes, threads      of each process
    limit                   bytes a process may use; None for no limit
    tasks_per_iteration     Dask tasks; 0 in one process
    exchanged_per_iteration bytes between processes
    shape                   the sizes the plan was made for, for reports
    stages                  by name, what is held on top of `base` before or after `items` are, each stage by itself
    remedy                  what the error of `validate` advises; by default by placement
    own_bytes               that the process holds which has workers do the work; 0 where it is one of them, or takes no more
    idle_workers            why the workers that there are stay idle, a line; "" where they work
    """

    placement: str  # "memory", "disk"
    processes: int
    threads: int
    base: int
    items: dict[str, int]
    disk: dict[str, int]
    limit: int | None
    tasks_per_iteration: int = 0
    exchanged_per_iteration: int = 0
    shape: Json = field(default_factory=dict)
    remedy: str | None = None
    stages: dict[str, int] = field(default_factory=dict)
    own_bytes: int = 0
    idle_workers: str = ""

    @property
    def process_bytes(self) -> int:
        """Return the bytes a process holds at the peak: `base` and all items, or the largest other stage."""
        return self.base + max([sum(self.items.values()), *self.stages.values()])

    @property
    def disk_bytes(self) -> int:
        """Return the bytes that the run writes at most."""
        return sum(self.disk.values())

    @property
    def fits(self) -> bool:
        """Return whether a process stays within `limit`."""
        return self.limit is None or self.process_bytes <= self.limit

    def validate(self) -> Plan:
        """Return this plan; raise MemoryBudgetError, which names the largest item, if it does not fit."""
        if not self.fits:
            assert self.limit is not None
            held = {
                **self.items,
                **{name: size for name, size in self.stages.items() if size > sum(self.items.values())},
            }
            worst = max(held, key=lambda name: held[name])
            remedy = self.remedy or (
                "raise memory_limit, lower rank or n_neighbors, or use dtype='float32'"
                if self.placement == "disk"
                else "raise memory_limit, or give work_dir so that the state can be kept on disk"
            )
            raise MemoryBudgetError(
                f"the plan does not fit: {worst} takes {format_bytes(held[worst])} of"
                f" {format_bytes(self.process_bytes)} a process",
                where="memory plan",
                got=f"memory_limit {format_bytes(self.limit)}",
                wanted=f"at least {format_bytes(self.process_bytes)}",
                remedy=remedy,
            )
        return self

    def as_dict(self) -> Json:
        """Return the plan as JSON takes it, with the entries of `shape` among the others."""
        names = (
            "placement",
            "processes",
            "threads",
            "base",
            "items",
            "stages",
            "disk",
            "limit",
            "tasks_per_iteration",
            "own_bytes",
        )
        content = {name: getattr(self, name) for name in names}
        content |= {"exchanged_per_iteration": self.exchanged_per_iteration, **self.shape}
        return content | {"process_bytes": self.process_bytes, "disk_bytes": self.disk_bytes}

    def describe(self) -> str:
        """Return a text table of the plan: one line an item, in readable units."""
        lines = [f"state in {self.placement}, {self.processes} process(es) of {self.threads} thread(s)"]
        lines += [f"  {'the process itself':<34}{format_bytes(self.base):>10}"]
        lines += [f"  {name:<34}{format_bytes(size):>10}" for name, size in self.items.items()]
        lines += [f"  {f'{name}, by itself':<34}{format_bytes(size):>10}" for name, size in self.stages.items()]
        limit = "none" if self.limit is None else format_bytes(self.limit)
        lines += [f"  {'a process, at most':<34}{format_bytes(self.process_bytes):>10}   limit {limit}"]
        if self.own_bytes:
            lines += [f"  {'this process, which asks them':<34}{format_bytes(self.own_bytes):>10}"]
        lines += [f"  disk: {name:<28}{format_bytes(size):>10}" for name, size in self.disk.items()]
        lines += [f"  {self.idle_workers}"] if self.idle_workers else []
        if self.processes > 1:
            lines += [
                f"  {self.tasks_per_iteration} tasks an iteration or a second, whichever is longer; "
                f"{format_bytes(self.exchanged_per_iteration)} exchanged an iteration"
            ]
        return "\n".join(lines)


def plan_pairwise(
    n: int,
    rank: int,
    dtype: DTypeLike,
    *,
    laplacian_entries: int,
    target_entries: int,
    dot_products: int | None = None,
    gathered_rows: int = 0,
    processes: int = 1,
    threads: int = 1,
    memory_limit: int | None = None,
    on_disk: bool = False,
    ahead: int = 0,
    checkpoints: bool = False,
    driver_shares: bool = False,
) -> Plan:
    """Plan the memory of KL-ADMM (Hu & Kwok 2013) for n patterns at `rank`.

    processes, threads: owners of the slabs, and the threads of each. laplacian_entries, target_entries: stored entries
    of L and T. dot_products: entries of the vector of sums, if the pairs are known. gathered_rows: rows of hubs that
    are exchanged. on_disk: the factors are in a work folder, a slab a thread in memory, and `ahead` more that are read
    or written meanwhile. checkpoints: a work folder with commits. driver_shares: the only owner is this process, which
    also holds the graph and makes the result. Computes only; `Plan.validate` raises.
    """
    # The same functions that cut the state decide here, so that plan and run cannot differ.
    size = np.dtype(dtype).itemsize
    width = slab_width(rank, dtype)
    slabs = n_slabs(rank, width)
    slab = n * width * size
    groups = group_bounds(slabs)
    shares = share(len(groups), processes)
    processes = len(shares)
    at_once = threads + ahead if on_disk else threads
    sums = 8 * (dot_products if dot_products is not None else int(SUMS_PER_PATTERN * n))
    parts, held = _vectors(shares, sums // 8, at_once)
    solved = size * target_entries if worth_sharing(processes, target_entries) else 0
    # The worker with the largest share decides: shares differ by at most one group.
    most_slabs = max(groups[part.stop - 1][1] - groups[part.start][0] for part in shares)
    items = {
        # On disk each thread holds one slab of the four arrays, in memory all of them are held.
        "factors (3) and linear term": 4 * slab * (min(at_once, most_slabs) if on_disk else most_slabs),
        "matrix gamma T - L": (laplacian_entries + target_entries) * (size + 4),
        "small systems": 16 * int(SUMS_PER_PATTERN * n) + 40 * target_entries,
        "sums over slabs": held * sums,
        "rows of hubs": 3 * gathered_rows * slabs * width * 8,
    }
    if driver_shares:
        # 12 bytes an entry of a CSR matrix: a double and the int32 of its column.
        items["graph and targets"] = 12 * laplacian_entries + 48 * target_entries
        if not on_disk:
            items["result"] = 2 * n * rank * size  # slabs read and the factor made of them, then it and its multiple
        if size < 8:  # K on T once more, in double: 16 columns, their product, and both ends of many entries at a time
            items["certified in double"] = 16 * 8 * (2 * n + 2 * min(target_entries, 1 << 18))
    if on_disk or checkpoints:
        rows = rows_per_chunk(n, rank, dtype)
        chunks = min(threads, -(-n // rows)) if on_disk else 1
        items["chunks of the result"] = 3 * rows * rank * size * chunks  # gathered, encoded and checked
    disk = {"working arrays": 4 * slab * slabs} if on_disk else {}
    if checkpoints:
        # Three arrays are committed (V, U and Lambda), each in up to three generations.
        disk["checkpoints (2 and 1 in progress)"] = 9 * slab * slabs
    if on_disk or checkpoints:
        disk |= {"result": n * rank * size, "graph": 12 * laplacian_entries}
    return Plan(
        placement="disk" if on_disk else "memory",
        processes=processes,
        threads=threads,
        base=PROCESS_BASE,
        items={name: count for name, count in items.items() if count},
        disk=disk,
        limit=memory_limit,
        tasks_per_iteration=processes if processes > 1 else 0,
        exchanged_per_iteration=int(2 * (processes - 1) * (parts * sums + solved)),
        shape={"n": n, "rank": rank, "dtype": np.dtype(dtype).name, "slabs": slabs, "width": width}
        | ({"ahead": ahead} if on_disk else {}),
    )


def _vectors(shares: Sequence[range], entries: int, at_once: int) -> tuple[float, int]:
    """Return the vectors of `entries` sums that an owner sends in a half-step, and that it holds at most."""
    # A path up the tree and one being filled by each thread; all parts twice, as received and as summed: the vectors
    # that owners send and hold, each its subtrees to all, or in ranges as much as those of one and the sum
    # (blocks/slabs/sums_exchange.py).
    sent = sum(map(subtrees, shares))
    parts = sent / len(shares) + 1 if in_ranges(len(shares), entries) else sent
    groups = max(map(len, shares))
    return parts, min(groups, at_once + int(np.ceil(np.log2(groups)))) + int(np.ceil(2 * parts))


# Remedies for a plan that does not fit: each is tried on the plan, and only those that help named.

RAISE_LIMIT = "raise memory_limit"
"""Remedy that always helps; it has other words where the limit is a share of a worker's."""
Way = tuple[str, Callable[[], bool]]
"""Remedy: words for a change, and a function that says whether the plan fits with it."""


def what_helps(ways: Iterable[Way]) -> str:
    """Return a sentence of the ways that make the plan fit; more memory is always one of them.

    >>> what_helps([("lower n_columns", lambda: False), ("use 1 thread", lambda: True)])
    'raise memory_limit, or use 1 thread'
    """
    found = [RAISE_LIMIT, *(words for words, fits in ways if fits())]
    return found[0] if len(found) == 1 else ", or ".join([", ".join(found[:-1]), found[-1]])


def fewer(words: str, fits: Callable[[int], bool], count: int) -> list[Way]:
    """Return the way of taking fewer than `count`: `words` with the most of its halves that fits.

    >>> what_helps(fewer("lower rank to {}", lambda rank: rank < 5, 16))
    'raise memory_limit, or lower rank to 4'
    """
    while (count := count // 2) >= 1:
        if fits(count):
            return [(words.format(count), lambda: True)]
    return []


# -- places ------------------------------------------------------------------------------------------------------------
# Processes, threads and memory limits that a run works with, for memory plans.

LOG = logging.getLogger("dkl")
WORKER_SHARE = 0.75
"""Share of a Dask worker's memory limit that a plan may take: the worker pauses at 0.8 of it."""
OWN_SHARE = 0.25
"""Share of this machine's memory that this process may take for work that workers would do no sooner."""
ROUND_SECONDS = 0.001
"""Time of an exchange between workers, however small (benchmarks/system/million.md)."""
BYTES_A_SECOND = 5e8
"""Rate assumed of disk and network, which are not measured."""


@dataclass(frozen=True)
class Place:
    """Processes of a run, their threads and memory limit, and whether these are a cluster's workers."""

    processes: int
    threads: int
    limit: int | None = None
    distributed: bool = False
    more_memory: str = ""
    """Advice on how to give the workers more memory."""

    @classmethod
    def of(cls, session: Session) -> Place:
        """Return the place of a session: this process' threads, or the workers with their least memory limit.

        Waits for the first worker of a cluster that has none. Workers that join later are not counted.
        """
        if not session.is_distributed:
            return cls(1, session.threads)
        waiting.workers(session)
        return cls(session.n_slots, session.most_threads, _worker_memory(session), True, session.more_memory())

    def allowed(self, memory_limit: int | None) -> int | None:
        """Return the bytes a process may use: the lesser of `memory_limit` and a worker's share, or None."""
        share = self._share()
        return min((value for value in (memory_limit, share) if value is not None), default=None)

    def checked(self, plan: Plan, memory_limit: int | None) -> Plan:
        """Return the plan; raise MemoryBudgetError if it does not fit.

        A limit that is a share of a worker's is reported with the worker's.
        """
        share = self._share()
        if plan.fits or share is None or share == memory_limit or plan.limit != share:
            return plan.validate()
        try:
            return plan.validate()
        except MemoryBudgetError as error:
            got = f"{format_bytes(share)}, {WORKER_SHARE:.0%} of a worker's {format_bytes(self.limit or 0)}"
            remedy = (error.remedy or "").replace(RAISE_LIMIT, self.more_memory)
            raise MemoryBudgetError(
                error.what, where=error.where, got=got, wanted=error.wanted, remedy=remedy
            ) from None

    def _share(self) -> int | None:
        return None if self.limit is None else int(WORKER_SHARE * self.limit)


def check_size(items: dict[str, int], limit: int | None, remedy: str) -> None:
    """Raise MemoryBudgetError if the arrays of work here, bytes by name, together exceed `limit` or machine memory."""
    allowed = limit or int(MEMORY_SHARE * machine_memory())
    Plan("memory", 1, 1, PROCESS_BASE, items, {}, allowed, remedy=remedy).validate()


def idle_workers(place: Place, here: float, there: float, held: int) -> str:
    """Return the line on workers that are left idle; "" if they work or there are no workers.

    here, there: seconds of an iteration in this process and on the workers, by sizes alone; held: bytes that this process would take.
    Workers are idle where they are no faster and the work fits here; the bytes of the result are the same. The setting "dkl.workers"
    of Dask's configuration, "always", has them work at any size.
    """
    from dask import config

    always = config.get("dkl.workers", "") == "always"
    if not place.distributed or there < here or held > OWN_SHARE * machine_memory() or always:
        return ""
    return f"the workers stay idle: about {there:.2g} s an iteration on them, {here:.2g} s in this process"


def spare_workers(session: Session, used: int, why: str) -> str:
    """Return the line on idle workers, beyond the `used` ones of a plan; "" if no others exist.

    Unlike `idle_workers`, of plans that no number of workers makes faster. Waits for no worker.
    """
    count = len(session.workers())
    if count <= used:
        return ""
    return f"the workers stay idle: {why}" if not used else f"{count - used} of {count} workers stay idle: {why}"


def note_idle_workers(plan: Plan) -> None:
    """Log the line of a plan on workers that stay idle, where it has one."""
    if plan.idle_workers:
        LOG.warning(plan.idle_workers)


def _worker_memory(session: Session) -> int | None:
    """Return the least memory limit of the cluster's workers, in bytes; None if no worker has one."""
    limits = (data.get("memory_limit") for data in session.members().values())
    return min((limit for limit in limits if limit), default=None)

"""`dkl plan`, and the same check before a fit: bytes from shapes and pairs, seconds from a few measured iterations."""

from __future__ import annotations

import time
from math import ceil
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse

from dkl.blocks.graph import plan_graph
from dkl.blocks.place import Place
from dkl.blocks.placement import LocalPlacement
from dkl.blocks.plan import Plan
from dkl.estimators.pairwise.settings import Settings, chosen_rank, plan_at
from dkl.linalg.slabs import slab_width
from dkl.pairs import Pairs
from dkl.problems.pairwise import PairwiseKernel, RandomStart, target_matrix
from dkl.resources import format_bytes
from dkl.runs.cluster import Cluster
from dkl.runs.driver import check_disk, describe_disk
from dkl.runs.files import Inputs, check_new, check_settings, read_inputs

SAMPLE = 20_000
"""Patterns of the problem on which an iteration is timed."""
TIMED = 3
BYTES_A_SECOND = 5e8
"""Assumed of disk and network, which are not measured."""
SLAB_TRANSFERS = 12
"""Arrays of a slab that an iteration reads and writes where the state is on disk: four and two, three and three."""
PHASE_SECONDS = 0.01
"""A round of Dask tasks; two an iteration."""


def show_plan(data: str, pairs: str, out: str, chosen: dict[str, Any], placing: dict[str, Any]) -> None:
    """Print what a fit takes, or refuse it as the fit would."""
    settings = check_settings(chosen)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, pairs, settings, values=False)
    place = cluster.place()
    plan, graph = check_fits(inputs, settings, place, path.parent)
    n, rank = inputs.rows.n, plan.shape["rank"]
    click.echo(f"{n:,} patterns, {inputs.rows.n_features:,} features, {inputs.pairs!r}, rank {rank}")
    click.echo(f"graph first: {format_bytes(graph)} at most beside the patterns; then")
    click.echo(plan.describe())
    click.echo(describe_disk(plan.disk_bytes, path.parent))
    if plan.processes == 1:
        click.echo("  no tasks and nothing exchanged in an iteration: one process")
    seconds = seconds_an_iteration(plan, settings, place, len(inputs.pairs.i))
    click.echo(
        f"about {seconds:.2g} s an iteration, up to {settings.max_iter} of them: timed here on {min(n, SAMPLE):,}"
    )
    click.echo("random patterns with as many pairs and neighbours each, and scaled; disk and network taken at 500 MB/s")


def check_fits(inputs: Inputs, settings: Settings, place: Place, folder: Path) -> tuple[Plan, int]:
    """(plan of the iteration, peak bytes of the graph stage); MemoryBudgetError or DiskError where they do not fit."""
    rows, targets = inputs.rows, inputs.targets
    entries = min(rows.n * (2 * settings.n_neighbors + 1), rows.n**2)  # at most: where no neighbour is mutual
    graph = plan_graph(
        rows.n,
        rows.n_features,
        rows.dtype.itemsize,
        settings.n_neighbors,
        settings.memory_limit,
        n_slots=place.threads,
        n_tasks=place.threads * place.processes,
        chunk_rows=rows.rows_per_chunk,
        density=min(1.0, rows.array.nnz / (rows.n * rows.n_features)) if rows.is_sparse else 1.0,
        in_place=rows.is_in_memory or rows.is_mapped,
    )
    problem = PairwiseKernel(sparse.csr_array(targets.shape), targets, settings.gamma)
    plan = plan_at(place, chosen_rank(problem, settings), entries, targets, settings, has_store=True)
    check_disk(plan.disk_bytes, folder, "choose another --out, or a lower --rank")
    return plan, graph["peak"]


def seconds_an_iteration(plan: Plan, settings: Settings, place: Place, n_pairs: int) -> float:
    """Iterations of a small problem on this machine, scaled to the plan's patterns and to its slabs a thread."""
    n, rank = plan.shape["n"], plan.shape["rank"]
    m = min(n, SAMPLE)
    slots = place.processes * place.threads
    threads = min(place.threads if not place.distributed else place.processes, plan.shape["slabs"])
    width = slab_width(rank, settings.dtype)
    program = _small_problem(m, settings, n_pairs / n).admm(threads * width, settings.dtype, 0.0)
    placement = LocalPlacement(program, threads=threads)
    try:
        placement.start(RandomStart(0, m, threads * width), program.start(settings.rho))
        placement.advance(1)  # compiles
        start = time.perf_counter()
        placement.advance(TIMED)
        seconds = (time.perf_counter() - start) / TIMED
    finally:
        placement.close()
    slabs = ceil(plan.shape["slabs"] / min(slots, plan.shape["slabs"]))
    seconds *= n / m * slabs
    if plan.placement == "disk":
        slab_bytes = n * width * np.dtype(settings.dtype).itemsize
        seconds += SLAB_TRANSFERS * plan.shape["slabs"] * slab_bytes / BYTES_A_SECOND
    if place.distributed:
        seconds += 2 * PHASE_SECONDS + plan.exchanged_per_iteration / place.processes / BYTES_A_SECOND
    return seconds


def _small_problem(n: int, settings: Settings, pairs_a_pattern: float) -> PairwiseKernel:
    """A random graph and random pairs on n patterns, of the density of the real ones."""
    rng = np.random.default_rng(0)
    count = n * min(settings.n_neighbors, n - 1)
    ends = (np.repeat(np.arange(n), count // n), rng.integers(n, size=count))
    graph = sparse.coo_array((np.full(count, 0.5), ends), shape=(n, n)).tocsr()
    laplacian = sparse.csr_array(sparse.eye_array(n) - (graph + graph.T) / (2 * settings.n_neighbors))
    drawn = rng.integers(n, size=(max(1, int(n * pairs_a_pattern)), 2))
    drawn = drawn[drawn[:, 0] != drawn[:, 1]]
    pairs = Pairs(drawn[::2], drawn[1::2]).check(n, "drop")
    return PairwiseKernel(laplacian, target_matrix(n, pairs.must_link, pairs.cannot_link), settings.gamma)

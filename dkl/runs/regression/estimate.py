"""`dkl plan regression`, and the same check before a fit: bytes from shapes, seconds from a block that is measured."""

from __future__ import annotations

from math import ceil, log2
from pathlib import Path
from typing import Any

import click
import numpy as np

from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.columns.fit import n_candidates, plan_fit
from dkl.estimators.columns.settings import RegressionSettings
from dkl.linalg.column_moments import add_moments, zero_moments
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.column_choice import FIRST_ROUND
from dkl.problems.column_pass import block_rows
from dkl.runs.cluster import Cluster
from dkl.runs.driver import check_disk, describe_disk
from dkl.runs.estimate import random_rows, timed
from dkl.runs.files import check_new
from dkl.runs.regression.inputs import RegressionInputs, check_settings, read_inputs

MOST_COLUMNS, MOST_ROWS = 1000, 2048
"""Of the block on which seconds are measured."""
BYTES_A_SECOND = 5e8
"""Assumed of a disk, which is not measured."""


def show_plan(data: str, targets: str | None, out: str, chosen: dict[str, Any], placing: dict[str, Any]) -> None:
    """Print what a fit takes, or refuse it as the fit would."""
    from dkl.runs.regression.work import with_folds

    settings = check_settings(chosen)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, targets, settings, values=False)
    settings = with_folds(settings, inputs.rows.n)
    place = cluster.place()
    plan = check_fits(inputs, settings, place, path.parent)
    rows, shape = inputs.rows, plan.shape
    folds = f", {shape['folds']} folds" if shape["folds"] > 1 else ""
    click.echo(f"{rows.n:,} rows, {rows.n_features:,} features, {shape['targets']} target(s), "
               f"{shape['columns']:,} columns{folds}")  # fmt: skip
    click.echo(plan.describe())
    click.echo(describe_disk(plan.disk_bytes, path.parent))
    seconds, passes = seconds_of_pass(rows, plan, settings, place)
    click.echo(f"about {seconds:.2g} s for {passes} pass(es) over the rows: measured here on one block and scaled; "
               "disk taken at 500 MB/s")  # fmt: skip
    if settings.columns == "rpcholesky":
        click.echo(f"before them {_rounds(shape['columns'])} shorter ones in which columns are drawn")
    click.echo("what follows does not depend on the number of rows")


def check_fits(inputs: RegressionInputs, settings: RegressionSettings, place: Place, folder: Path) -> Plan:
    """The plan; MemoryBudgetError or DiskError where it does not fit."""
    count = n_candidates(inputs.rows.n, settings, None)
    n_targets = 1 if inputs.targets.ndim == 1 else inputs.targets.shape[1]
    plan = plan_fit(inputs.rows, count, n_targets, settings, place, has_folder=True)
    check_disk(plan.disk_bytes, folder, "choose another --out, or a lower --n-columns")
    return plan


def seconds_of_pass(rows: RowSource, plan: Plan, settings: RegressionSettings, place: Place) -> tuple[float, int]:
    """(seconds, number of passes): a block of random rows here, scaled to all rows and columns and to the threads."""
    n, M, panel = plan.shape["n"], plan.shape["columns"], plan.shape["panel"]
    count = min(M, MOST_COLUMNS)
    height = min(n, MOST_ROWS, block_rows(M, rows.n_features, settings.dtype))
    block = random_rows(rows, height)
    points = np.arange(count) if settings.kernel == "precomputed" else block[np.arange(count) % height]
    with one_blas_thread():
        columns = timed(lambda: settings.kernel_function.columns(block, points, settings.dtype))
        C = np.ones((height, count), settings.dtype)
        moments, y = zero_moments(1, count, plan.shape["targets"]), np.ones((height, plan.shape["targets"] + 1))
        sums = timed(lambda: add_moments(moments, C, y))
    passes = 1 if panel is None else ceil(M / panel)
    # Of a Gram matrix in memory one triangle is made; by panels both are.
    work = passes * columns * M / count + (1 if panel is None else 2) * sums * (M / count) ** 2
    threads = Session(threads=place.threads).threads * place.processes
    seconds = work * n / height / min(threads, ceil(n / height))
    if rows.is_stored and not rows.is_mapped:
        seconds += passes * n * rows.row_bytes / BYTES_A_SECOND
    return seconds + sum(plan.disk.values()) / BYTES_A_SECOND, passes


def _rounds(count: int) -> int:
    """In which columns are drawn, about: each doubles them."""
    return 1 + max(1, ceil(log2(max(1, count / FIRST_ROUND))) + 1)

"""`dkl plan svc`, and the same check before a fit: bytes from shapes, seconds from a block that is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from dkl.blocks.plan import Plan
from dkl.blocks.session import Session
from dkl.estimators.svc.fit import kernel_place, plan_machines
from dkl.estimators.svc.settings import SVCRunSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.runs.cluster import Cluster
from dkl.runs.driver import check_disk, describe_disk
from dkl.runs.estimate import random_rows, timed
from dkl.runs.files import check_new
from dkl.runs.svc.inputs import SVCInputs, check_settings, kernels_of, read_inputs
from dkl.solvers.svm_pairs import TwoClasses, machines

MOST_COLUMNS, MOST_ROWS = 1000, 2048
"""Of the block on which seconds are measured."""


def show_plan(data: str, targets: str | None, out: str, chosen: dict[str, Any], placing: dict[str, Any]) -> None:
    """Print what a fit takes, or refuse it as the fit would."""
    settings = check_settings(chosen)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, targets, settings, values=False)
    with cluster.planned() as session:
        plan = check_fits(inputs, settings, session, path.parent)
    rows, pairs = inputs.rows, machines_of(inputs, settings)
    click.echo(f"{rows.n:,} rows, {rows.n_features:,} features, {len(inputs.classes)} classes, {len(pairs)} machine(s) "
               f"of {max(len(pair.rows) for pair in pairs):,} rows at most")  # fmt: skip
    click.echo(plan.describe())
    click.echo(describe_disk(run_bytes(inputs, settings), path.parent))
    seconds = seconds_of_kernel(inputs, settings, plan)
    click.echo(f"about {seconds:.2g} s to make the whole kernel matrix once: measured here on one block and scaled")
    if plan.placement == "recomputed":
        click.echo("of which solvers take the columns that they need, as often as they do")


def check_fits(inputs: SVCInputs, settings: SVCRunSettings, session: Session, folder: Path) -> Plan:
    """The plan; MemoryBudgetError or DiskError where it does not fit."""
    place = kernel_place(inputs.rows, settings.machines, session)
    kernels = kernels_of(inputs.rows, settings)
    plan = plan_machines(place, kernels, machines_of(inputs, settings), 1, settings.machines)
    check_disk(run_bytes(inputs, settings), folder, "choose another --out")
    return plan


def machines_of(inputs: SVCInputs, settings: SVCRunSettings) -> list[TwoClasses]:
    numbers = np.searchsorted(inputs.classes, inputs.labels)
    return machines(numbers, len(inputs.classes), settings.multi_class)


def run_bytes(inputs: SVCInputs, settings: SVCRunSettings) -> int:
    """Two states of all coefficients, and the model if every row were a support vector."""
    pairs, rows = machines_of(inputs, settings), inputs.rows
    states = 2 * 8 * sum(len(pair.rows) for pair in pairs)
    return states + rows.n * (8 * (len(pairs) + 1) + rows.row_bytes)


def seconds_of_kernel(inputs: SVCInputs, settings: SVCRunSettings, plan: Plan) -> float:
    """Columns for a block of random rows here, scaled to all rows and columns and to the threads."""
    rows, n = inputs.rows, inputs.rows.n
    count, height = min(n, MOST_COLUMNS), min(n, MOST_ROWS)
    block = random_rows(rows, height)
    seconds = 0.0
    with one_blas_thread():
        for name in settings.kernel_names:
            kernel = Kernel(name, None, settings.degree, settings.coef0)
            points = np.arange(count) if kernel.is_precomputed else block[np.arange(count) % height]
            seconds += timed(lambda: kernel.columns(block, points, settings.dtype))  # noqa: B023
    pairs = n * (n + 1) / 2 if plan.placement == "memory" else float(n) * n
    return seconds * pairs / (count * height) / (plan.processes * plan.threads)

"""ONK in a run's folder: coefficients kept in between, to go on from, and the model that they come to."""

from __future__ import annotations

import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.common.run_arrays import report_of
from dkl.estimators.svc.learner import OptimalNeighborhoodSVC
from dkl.estimators.svc.model import store_model
from dkl.estimators.svc.settings import SVCRunSettings
from dkl.solvers.svm_pairs import machines
from dkl.stores.disk import disk_errors
from dkl.stores.kept_states import KeptStates
from dkl.stores.run import RunStore

COMMIT_SECONDS, COMMIT_SHARE = 5.0, 20.0
"""Automatic commits come every few seconds, and take a twentieth of the time at most."""

Row = dict[str, Any]


def states_of(run: RunStore) -> KeptStates:
    """Where the machines' coefficients are kept in between."""
    return KeptStates(run.path / "alphas", "alphas", "the coefficients")


class StoredMachines:
    """Keeps the machines' alpha in a run's folder: every so many rounds of their solvers, or by time.

    A state holds all machines in one array `alphas`, and in `machines` (k, 3) whose they are, their length and whether
    they are solved.
    """

    def __init__(self, run: RunStore, every: int | str) -> None:
        self.run, self.every = run, every
        self.states = states_of(run)
        self.states.sweep()
        self.number, self.alphas, self.solved = self._read()
        self.rounds, self.last, self.cost = 0, time.monotonic(), 0.0

    def begun(self, machine: int) -> NDArray[np.float64] | None:
        return self.alphas.get(machine)

    def keep(self, machine: int, alpha: NDArray[np.float64], done: bool) -> None:
        self.alphas[machine] = np.array(alpha, np.float64)
        self.solved = self.solved | {machine} if done else self.solved - {machine}
        self.rounds += 1
        if self._is_due():
            self.commit()

    def __call__(self, row: Row) -> None:
        """A callback of the fit: the next round may be long in coming."""
        if self.rounds and self._is_due():
            self.commit()

    def _is_due(self) -> bool:
        if isinstance(self.every, int):
            return self.rounds >= self.every
        return time.monotonic() - self.last > max(COMMIT_SECONDS, COMMIT_SHARE * self.cost)

    def commit(self) -> None:
        """What has come since the last commit, if anything, is kept."""
        if not self.rounds:
            return
        start = time.monotonic()
        self.number += 1
        order = sorted(self.alphas)
        table = [(machine, len(self.alphas[machine]), machine in self.solved) for machine in order]
        arrays = {
            "alphas": np.concatenate([self.alphas[machine] for machine in order]),
            "machines": np.array(table, np.int64),
        }
        self.states.write(self.number, arrays, {})
        self.rounds, self.last = 0, time.monotonic()
        self.cost = self.last - start
        self.run.log(event="commit", machines=len(order), solved=len(self.solved), cost=self.cost)

    def _read(self) -> tuple[int, dict[int, NDArray[np.float64]], set[int]]:
        number, found, _ = self.states.read()
        table = found.get("machines", np.empty((0, 3), np.int64)).tolist()
        ends = np.cumsum([length for _, length, _ in table]).tolist()
        alphas = {
            machine: found["alphas"][end - length : end] for (machine, length, _), end in zip(table, ends, strict=True)
        }
        return number, alphas, {machine for machine, _, solved in table if solved}


def fit_in_run(
    run: RunStore,
    rows: RowSource,
    labels: NDArray,
    settings: SVCRunSettings,
    session: Session,
    *,
    callbacks: list[Callable[[Row], Any]],
    notes: Callable[[], dict[str, Any]] = dict,
) -> OptimalNeighborhoodSVC:
    """A fit whose coefficients and model are on disk; goes on from what is there.

    notes: more for the report, asked at the end.
    """
    keeper = StoredMachines(run, settings.checkpoint_every)
    with _kernels_beside(run, settings.work_dir) as work_dir:
        model = settings.estimator(work_dir=work_dir, callbacks=[*callbacks, keeper])
        try:
            model._fit(rows, labels, None, session, keeper)
        except KeyboardInterrupt:
            keeper.commit()
            raise
    count = len(model.intercept_)
    for callback in callbacks:
        callback({"stage": "machines", "iteration": count, "of": count})
    store_model(run, model)
    run.write_report(_report(model, labels, settings) | notes())
    if model.result_.outcome.converged:
        keeper.states.drop()
    else:
        keeper.commit()  # for whoever goes on with it
    return model


@contextmanager
def _kernels_beside(run: RunStore, work_dir: str | None) -> Iterator[Path | None]:
    """A folder in `work_dir` for this run's kernel matrices. What a killed attempt has left in it goes, as all does."""
    if work_dir is None:
        yield None
        return
    folder = Path(work_dir) / f"dkl-kernels-{zlib.crc32(str(run.path).encode()):08x}"
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors("cannot be made", folder):
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(model: OptimalNeighborhoodSVC, labels: NDArray, settings: SVCRunSettings) -> dict[str, Any]:
    classes, numbers = model.classes_.tolist(), np.searchsorted(model.classes_, labels)
    pairs = machines(numbers, len(classes), settings.multi_class)
    outputs = [
        {
            "between": between,
            "rows": len(pair.rows),
            "n_support": int(np.count_nonzero(model.dual_coef_[number])),
            "objective": float(model.objective_[number]),
            "gap": float(model.duality_gap_[number]),
            "relative_gap": float(model.relative_gap_[number]),
            "kernel_weights": model.kernel_weights_[number].tolist(),
        }
        for number, (pair, between) in enumerate(zip(pairs, _opponents(classes, settings.multi_class), strict=True))
    ]
    return report_of(model.result_, settings.as_dict(), n_support=len(model.support_), outputs=outputs)


def _opponents(classes: list[Any], multi_class: str) -> list[list[Any]]:
    """Of each machine, the class that is positive, and the other or none (the rest)."""
    if len(classes) == 2:
        return [[classes[1], classes[0]]]
    if multi_class == "ovr":
        return [[name, None] for name in classes]
    return [[first, other] for k, first in enumerate(classes) for other in classes[k + 1 :]]

"""The choice of gamma in a run's folder: each fold's path while it is under way, then the errors and the factor that the fit begins at."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.common.run_arrays import check_lengths
from dkl.estimators.pairwise.arrays import ARRAYS
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.solvers.gamma_errors import FoldPath, GammaChoice
from dkl.solvers.watch import Row
from dkl.stores.kept_states import KeptStates
from dkl.stores.run import RunStore

FOLDER = "choice"


class StoredFolds:
    """Keeps the folds' paths, a commit a kernel: what a kill costs is the kernel under way."""

    def __init__(self, run: RunStore, gammas: NDArray[np.float64]) -> None:
        self.run, self.gammas = run, gammas.tolist()
        self._states(0).remove_leftovers()

    def _states(self, fold: int) -> KeptStates:
        return KeptStates(self.run.path / "folds", ARRAYS, f"fold{fold}", "a fold's path")

    def load(self, fold: int, n: int) -> FoldPath:
        """The fold's path over n rows as far as it is kept; of other gammas, or damaged, nothing is."""
        _, found, notes = self._states(fold).read(lambda notes: notes["gammas"] == self.gammas)
        try:
            errors, ranks = [float(error) for error in notes["errors"]], [int(rank) for rank in notes["ranks"]]
            seconds, factor = [float(second) for second in notes["seconds"]], found["factor"]
            is_whole = len(errors) == len(ranks) == len(seconds) <= len(self.gammas) and all(map(math.isfinite, errors))
            if is_whole and factor.shape == (n, ranks[-1]):
                return FoldPath(factor, errors, ranks, seconds)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            pass  # none was kept, or nothing that was ever written
        return FoldPath()

    def commit(self, fold: int, path: FoldPath) -> None:
        """Put the fold's path on disk in place of what was there. Raises DiskError."""
        assert path.factor is not None
        told: dict[str, Any] = {"errors": path.errors, "ranks": path.ranks, "seconds": path.seconds}
        number = len(path.errors)
        self._states(fold).write(number, {"factor": np.ascontiguousarray(path.factor)}, {"gammas": self.gammas, **told})
        self.run.log(event="commit", fold=fold, gamma=self.gammas[number - 1])
        self.run.publish_if_reachable()

    def drop(self) -> None:
        """Remove the paths, once the choice is stored."""
        self._states(0).drop()


def store_choice(run: RunStore, choice: GammaChoice, start: NDArray | None) -> None:
    """Keep the choice, and the factor that the fit begins at, if there is any. Raises DiskError."""
    arrays = {"gammas": choice.gammas, "errors": choice.errors, "ranks": choice.ranks, "seconds": choice.seconds}
    run.write_arrays(FOLDER, arrays if start is None else {**arrays, "start": np.ascontiguousarray(start)})


def load_choice(run: RunStore, n: int | None = None) -> tuple[GammaChoice, NDArray | None] | None:
    """What `store_choice` was given; None where nothing is. n: rows, where they are known. Raises StoreError."""
    if not (run.path / FOLDER).is_dir():
        return None
    found, where = run.read_arrays(FOLDER), f"{run.path}/{FOLDER}"
    if missing := {"gammas", "errors", "ranks", "seconds"} - found.keys():
        raise StoreError("a part of the choice of gamma is missing", where=where, got=f"no {min(missing)}")
    known = {} if n is None else {"sample": n}
    check_lengths(run, FOLDER, found, "a choice of gamma of different lengths", where, **known)
    choice = GammaChoice(found["gammas"], found["errors"], found["ranks"], found["seconds"])
    if not choice.gammas.size or not np.all(np.isfinite(choice.gammas) & (choice.gammas > 0)):
        raise StoreError("not values of gamma", where=where)
    return choice, found.get("start")


def rows_of(choice: GammaChoice, settings: PairwiseSettings) -> list[Row]:
    """The choice's rows of the history, as they were recorded."""
    return [{"stage": "cv", "of": settings.n_gammas * settings.cv, **row} for row in choice.rows]

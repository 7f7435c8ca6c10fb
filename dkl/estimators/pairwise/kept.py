"""Held-out pairs in a run's folder: the path of each fold under way, then scores and wrong pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import check_lengths
from dkl.estimators.pairwise.arrays import ARRAYS
from dkl.estimators.pairwise.wrong_pairs import WrongPairs
from dkl.problems.pair_folds import n_contradictions
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.gamma_scores import FoldPath, GammaChoice
from dkl.solvers.watch import Row
from dkl.stores.checkpoint_folder import CheckpointFolder
from dkl.stores.run import RunStore
from dkl.stores.sealed_json import read_json
from dkl.stores.seals import is_sealed

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

FOLDER = "choice"
TABLES = ("gammas", "scores", "cosines", "curves", "log_likelihood", "ranks", "seconds")


class StoredFolds:
    """Store of the folds' paths, a commit a kernel: a kill costs the kernel under way."""

    def __init__(self, run: RunStore, gammas: NDArray[np.float64]) -> None:
        self.run, self.gammas = run, gammas.tolist()
        self._states(0).remove_leftovers()

    def _states(self, fold: int) -> CheckpointFolder:
        return CheckpointFolder(self.run.path / "folds", ARRAYS, f"fold{fold}", "a fold's path")

    def load(self, fold: int, n: int, held_out: int) -> FoldPath:
        """Return the fold's stored path over n rows and `held_out` pairs.

        It is empty if damaged or of other gammas.
        """
        _, found, notes = self._states(fold).read(lambda notes: notes["gammas"] == self.gammas)
        try:
            ranks, seconds = [int(rank) for rank in notes["ranks"]], [float(second) for second in notes["seconds"]]
            factor, scores, cosines = found["factor"], found["scores"], found["cosines"]
            is_whole = len(ranks) == len(seconds) <= len(self.gammas) and scores.shape == cosines.shape
            is_finite = bool(np.isfinite(scores).all() and np.isfinite(cosines).all())
            if is_whole and is_finite and scores.shape == (len(ranks), held_out) and factor.shape == (n, ranks[-1]):
                return FoldPath(factor, list(scores), list(cosines), ranks, seconds)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            pass  # none was kept, or nothing that was ever written
        return FoldPath()

    def commit(self, fold: int, path: FoldPath) -> None:
        """Put the fold's path on disk in place of what was there. Raises DiskError."""
        assert path.factor is not None
        number = len(path.ranks)
        arrays = {
            "factor": np.ascontiguousarray(path.factor),
            "scores": np.array(path.scores),
            "cosines": np.array(path.cosines),
        }
        told: dict[str, object] = {"gammas": self.gammas, "ranks": path.ranks, "seconds": path.seconds}
        self._states(fold).write(number, arrays, told)
        self.run.log(event="fold", fold=fold, gamma=self.gammas[number - 1])
        self.run.publish_if_reachable()

    def drop(self) -> None:
        """Remove the paths, once the choice is stored."""
        self._states(0).drop()


def store_choice(run: RunStore, choice: GammaChoice, wrong: WrongPairs | None) -> None:
    """Keep the choice, and the pairs that look wrong, if these were looked for. Raises DiskError."""
    arrays = {name: getattr(choice, name) for name in TABLES}
    if wrong is not None:
        arrays |= {"probability": wrong.probability, "curve": wrong.curve}
    run.write_arrays(FOLDER, arrays)


def load_pairs(run: RunStore) -> Pairs:
    """Return the stored pairs with their weights. Raises StoreError where these do not fit together."""
    must_link, cannot_link = run.read_pairs()
    try:
        return Pairs(must_link, cannot_link, weights=run.read_pair_weights())
    except InputError as error:
        raise StoreError("invalid pairs", where=f"{run.path}/pairs", got=str(error)) from error


def has_graph(run: RunStore) -> bool:
    """Return whether the graph is stored, whole: its seal is written last."""
    return is_sealed(run.path / "graph")


def graph_notes(run: RunStore) -> Json:
    """Return sigma, n_neighbors and the like of the stored graph, {} before; StoreError if damaged."""
    if not has_graph(run):
        return {}
    run.check_part("graph")
    attributes = read_json(run.path / "graph" / "zarr.json").get("attributes")
    notes = attributes if isinstance(attributes, dict) else {}
    return {name: notes[name] for name in ("sigma", "n_neighbors", "laplacian", "summary") if name in notes}


def load_choice(run: RunStore) -> tuple[GammaChoice, WrongPairs | None] | None:
    """Return what `store_choice` was given; None where nothing is. Raises StoreError."""
    if not (run.path / FOLDER).is_dir():
        return None
    found, where = run.read_arrays(FOLDER), f"{run.path}/{FOLDER}"
    if missing := set(TABLES) - found.keys():
        raise StoreError("a part of the choice of gamma is missing", where=where, got=f"no {min(missing)}")
    pairs = load_pairs(run)
    check_lengths(run, FOLDER, found, "a choice of gamma of different lengths", where, pair=len(pairs.i))
    choice = GammaChoice(**{name: found[name] for name in TABLES})
    if not choice.gammas.size or not np.all(np.isfinite(choice.gammas) & (choice.gammas > 0)):
        raise StoreError("not values of gamma", where=where)
    if "probability" not in found:
        return choice, None
    probability, curve = found["probability"], found.get("curve", np.empty(0))
    if curve.shape != (3,) or not np.all((probability >= 0) & (probability <= 1)):
        raise StoreError("not probabilities of pairs", where=where)
    count = n_contradictions(pairs)
    return choice, WrongPairs(pairs, probability, curve, count, choice.gammas, choice.log_likelihood)


def rows_of(choice: GammaChoice) -> list[Row]:
    """Return the choice's rows of the history, as they were recorded."""
    return [{"stage": "cv", "of": choice.ranks.size, **row} for row in choice.rows]

"""A fit of pairs in a run's folder: the problem for resuming, held-out pairs and which of them look wrong, report and learner."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.neighbor_graph import Graph
from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, check_rows, describe_names, log_machine, trained_on
from dkl.estimators.base.run_arrays import report_of as common_report
from dkl.estimators.base.standardize import store_scale
from dkl.estimators.pairwise.arrays import ARRAYS, FOLDS_FOLDER, SEARCH_FOLDER, SIMILARITY_FOLDER
from dkl.estimators.pairwise.fit import PairwiseFit
from dkl.estimators.pairwise.held_out import HeldOutPairs, holds_out_for_certain
from dkl.estimators.pairwise.plan import SharedPlan, check_room, make_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.linalg.rows.column_moments import ColumnScale
from dkl.problems.pair_folds import n_contradictions
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.gamma_path import FoldPath, GammaChoice, NoisyLogistic
from dkl.solvers.watch import Row
from dkl.stores.checkpoints import CheckpointFolder
from dkl.stores.graph import n_rows_in, read_csr, write_csr_blocks
from dkl.stores.run import RunStore
from dkl.stores.seals import drawn, is_sealed, read_json

if TYPE_CHECKING:
    from dkl.stores.seals import Json


# Held-out pairs in a run's folder: the path of each fold under way, then scores and wrong pairs.

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
        notes: dict[str, object] = {"gammas": self.gammas, "ranks": path.ranks, "seconds": path.seconds}
        self._states(fold).write(number, arrays, notes)
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


def stored_pairs(run: RunStore) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the stored (must-link, cannot-link) pairs, (m, 2) each. Raises StoreError for other than rows of the data."""
    must_link, cannot_link = run.read_pairs()
    # A run that an estimator was given a path for names no files, and is read once it has its graph.
    n = trained_on(run)[0] if "inputs" in run.config else n_rows_in(run.path / "graph")
    for name, pairs in (("must_link", must_link), ("cannot_link", cannot_link)):
        check_rows(n, pairs, f"{run.path}/pairs/{name}")
    return must_link, cannot_link


def load_pairs(run: RunStore) -> Pairs:
    """Return the stored pairs with their weights. Raises StoreError where these do not fit together."""
    must_link, cannot_link = stored_pairs(run)
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


# Pairs that look wrong: the probability of each by held-out scores, and how far the fit trusts it.
#
# Where a gamma smaller than the given one makes the held-out pairs more likely, they are scored by their cosines at
# that gamma, and a `NoisyLogistic` of these says how likely each is wrong. The fit of all pairs is at that gamma, with
# each pair's weight times 1 - P(wrong). Otherwise all pairs are trusted, and the fit is the same as without looking.

Vector = NDArray[np.float64]
LEAST_TRUST = 1e-4
"""Smallest factor of a pair's weight: the problem takes weights above 0."""
NAMED = 3
"""Maximum number of pairs that a text names."""


@dataclass(frozen=True)
class WrongPairs:
    """Pairs that look wrong; they may be right.

    pairs           the checked pairs, m of them, must-links first
    probability     (m,) that each is wrong, in their order; 0 where all are trusted
    curve           (slope, intercept, floor) of the `NoisyLogistic` of the pairs' cosines; NaN where a callback ended the choice before
    contradictions  number of cannot-links whose ends the must-links join
    gammas, log_likelihood
                    (k,) gammas that were compared, and the log-likelihood of the held-out pairs under each
    """

    pairs: Pairs = field(repr=False)
    probability: Vector = field(repr=False)
    curve: Vector = field(repr=False)
    contradictions: int
    gammas: Vector = field(repr=False)
    log_likelihood: Vector = field(repr=False)

    @property
    def share(self) -> float:
        """Return the estimated share of wrong pairs."""
        return float(np.nan_to_num(self.curve[2]))

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """Return flags (m,), True for pairs that are more likely wrong than right."""
        return self.probability > 0.5

    @property
    def trust(self) -> Vector:
        """Return the factors (m,) of the pairs' weights in the fit."""
        return np.maximum(1.0 - self.probability, LEAST_TRUST)

    @property
    def is_used(self) -> bool:
        """Return whether the fit trusts pairs less that look wrong."""
        return bool(self.probability.any())

    @property
    def reason(self) -> str:
        """Return why some pairs must be wrong; empty without contradictions."""
        if not self.contradictions:
            return ""
        lie = "cannot-links lie" if self.contradictions > 1 else "cannot-link lies"
        return f"{self.contradictions:,} {lie} inside must-link components, so some pairs are wrong"

    @property
    def summary(self) -> str:
        """Return one line for a warning."""
        m = len(self.probability)
        looks = (
            f"{np.count_nonzero(self.flagged):,} of {m:,} pairs look wrong, and count for less (result_.wrong_pairs)"
        )
        return f"{self.reason}: {looks}" if self.reason else looks

    def as_dict(self) -> dict[str, object]:
        """Return the numbers for a report, JSON."""
        return {
            "share": self.share,
            "flagged": int(np.count_nonzero(self.flagged)),
            "contradictions": self.contradictions,
            "used": self.is_used,
        }

    def __str__(self) -> str:
        m, count = len(self.probability), int(np.count_nonzero(self.flagged))
        if not self.is_used:
            why = f"{self.reason}, but pairs" if self.reason else "Pairs"
            return f"{why} held out do not show which of {m:,} look wrong: all are trusted"
        text = f"About {self.share:.0%} of {m:,} pairs look wrong; {count:,} flagged (P > .5)"
        if not count:
            return text
        order = np.argsort(-self.probability, kind="stable")[: min(NAMED, count)]
        kinds = ("cannot-link", "must-link")
        i, j, sign = self.pairs.i, self.pairs.j, self.pairs.sign
        named = [f"{kinds[int(sign[k] > 0)]} {i[k]}-{j[k]} (P = {self.probability[k]:.2f})" for k in order.tolist()]
        more = f" and {count - len(named):,} more" if count > len(named) else ""
        known = (
            "on test sets most such flags were right, fewer where classes overlap, and half of the wrong pairs had one"
        )
        return f"{text}; {known}: {', '.join(named)}{more}"


def wrong_pairs_of(choice: GammaChoice, pairs: Pairs, contradictions: int) -> WrongPairs:
    """Return how likely each pair is wrong by its score; none is flagged if the last gamma is the best."""
    is_must = pairs.sign > 0
    probability, parameters = np.zeros(len(is_must)), np.full(3, np.nan)
    if choice.is_whole:
        cosines = choice.cosines[choice.best]
        curve = NoisyLogistic.fit(cosines, is_must, even_weights(pairs))
        parameters[:] = curve.parameters
        if choice.best < len(choice.gammas) - 1:
            probability = curve.wrong(cosines, is_must)
    return WrongPairs(pairs, probability, parameters, contradictions, choice.gammas, choice.log_likelihood)


def even_weights(pairs: Pairs) -> Vector:
    """Return the pairs' weights scaled to mean 1, so that a likelihood counts m pairs whatever their unit."""
    return pairs.weights / pairs.weights.mean()


ROWS_A_BLOCK = 65_536


def notes_of(graph: Graph) -> dict[str, object]:
    """Return what a run and its report say of the graph, the attributes of its part."""
    return {
        "sigma": graph.sigma,
        "n_neighbors": graph.n_neighbors,
        "laplacian": graph.kind,
        "summary": graph.describe(),
    }


def store_problem(run: RunStore, graph: Graph, pairs: Pairs, held: HeldOutPairs | None = None) -> None:
    """Store what resuming needs: the graph in block CSR, its local widths, pairs, and those to hold out."""
    if held is not None:
        held.store(run)
    if graph.similarity.is_local:
        run.write_arrays(SIMILARITY_FOLDER, {"widths": graph.similarity.widths})
    run.write_pairs(pairs.must_link, pairs.cannot_link, pairs.weights if pairs.is_weighted else None)
    # A damaged or half-written one of an earlier attempt: zarr would write into it, chunk next to chunk.
    shutil.rmtree(run.path / "graph", ignore_errors=True)
    write_csr_blocks(str(run.path / "graph"), graph.laplacian, max(1, min(graph.n, ROWS_A_BLOCK)), notes_of(graph))
    run.seal_part("graph")  # last: by this seal `has_graph` knows that all of the above is there


def load_problem(run: RunStore, gamma: float) -> PairwiseKernel:
    """Load the pairwise problem of the stored graph and pairs."""
    pairs = load_pairs(run)
    run.check_part("graph")
    laplacian = read_csr(str(run.path / "graph"))
    return PairwiseKernel.of(laplacian, pairs, gamma)


def report_of(fitted: PairwiseFit, graph: dict[str, object]) -> dict[str, object]:
    """Build the JSON report of a run."""
    return common_report(
        fitted.result,
        fitted.settings.as_dict(),
        rank=fitted.rank,
        solver=fitted.solver,
        gamma=fitted.gamma,
        certificate=fitted.certificate.as_dict(),
        graph=graph,
        **({} if fitted.result.wrong_pairs is None else {"wrong_pairs": fitted.result.wrong_pairs.as_dict()}),
    )


def write_result(run: RunStore, fitted: PairwiseFit, report: dict[str, object]) -> None:
    """Mark the run complete, and delete the states it was resumed from. Raises DiskError."""
    proof = fitted.certificate
    # Before the states go: a kill between the two leaves a complete run with states too many.
    run.write_report(report, proof.lift, proof.pair_lift)
    for folder in (SEARCH_FOLDER, FOLDS_FOLDER):
        shutil.rmtree(run.path / folder, ignore_errors=True)


@dataclass(frozen=True)
class FitStorage:
    """Run that a fit is stored in, if any; or else disk space for a state that may not fit in memory."""

    run: RunStore | None
    scratch: RunStore | None


@contextmanager
def kept_in(
    path: Path | None,
    problem: PairwiseKernel,
    pairs: Pairs,
    graph: Graph,
    settings: PairwiseSettings,
    session: Session,
    held: HeldOutPairs | None = None,
    scale: ColumnScale | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[FitStorage]:
    """Yield a new run at `path` with its problem stored; without a path disk space, if needed.

    MemoryBudgetError, before anything is written, for a fit that fits nowhere.
    """
    # Without a limit here, all memory of this process may be used, and no state goes to a disk.
    needs_scratch = settings.memory_limit is not None or session.is_distributed
    make_plan(problem, settings, session, has_store=path is not None or needs_scratch)
    if holds_out_for_certain(settings) and SharedPlan.of(problem, settings, session) is None:
        check_room(problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz), settings)
    with tempfile.TemporaryDirectory(prefix="dkl-") as temporary:
        run = scratch = None
        if path is not None:
            config = {"task": "pairwise", "settings": settings.as_dict(), **drawn(), **describe_names(names)}
            run = RunStore.create(path, config)
            log_machine(run)
            store_scale(run, scale)
            store_problem(run, graph, pairs, held)
        elif needs_scratch:
            scratch = RunStore.create(Path(temporary) / "run.zarr", {"settings": settings.as_dict()})
        try:
            with run.at_its_place() if run is not None else nullcontext():
                yield FitStorage(run, scratch)
        finally:
            for store in (run, scratch):
                if store is not None:
                    store.close()

"""Facts of a run of pairs for `dkl info`, and readers of the parts of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.pairwise.arrays import COLUMNS, history, kept_rows
from dkl.estimators.pairwise.fold_store import WrongPairs, graph_notes, has_graph, load_choice
from dkl.runs import report
from dkl.runs.kind import Facts
from dkl.solvers.pairwise.gamma_scores import GammaChoice
from dkl.stores.generations import Generation
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

LAST_ROWS = 5


def facts(run: RunStore) -> Facts:
    """Return state, graph, certificate and the last iterations."""
    rows, graph, known = history(run), graph_notes(run), load_choice(run)
    choice, wrong = (None, None) if known is None else known
    config = {}
    if graph:
        notes = ", ".join(f"{name} {value}" for name, value in graph.items() if name != "summary")
        config["graph"] = str(graph.get("summary", notes))
    with report.damages(run):
        result = _result(run.report(), choice, wrong) if run.is_complete else {}
    choosing = [] if choice is None else _choice_table(choice)
    details = {} if choice is None else {"cv": _choice_details(choice)}
    if wrong is not None:
        details["wrong_pairs"] = {**wrong.as_dict(), "probability": wrong.probability.tolist()}
    table = [f"last of {len(rows)} iterations", *_table(rows[-LAST_ROWS:])] if rows else []
    return Facts(report.state(run, _under_way), config, result, choosing + table, {"history": rows, **details})


def _under_way(run: RunStore) -> str:
    generation, rows = newest(run), kept_rows(run)
    if rows is not None:
        return f"resumable at iteration {rows}"
    if generation is None and (run.path / "folds").is_dir():
        return "resumable while pairs are held out"
    if generation is not None:
        return f"resumable at iteration {generation.iteration}"
    return "not started; graph and pairs are stored" if has_graph(run) else "not started; the graph is not built yet"


def _result(found: Json, choice: GammaChoice | None, wrong: WrongPairs | None) -> dict[str, str]:
    certificate = found["certificate"]
    how = {}
    if choice is not None:
        how["gamma"] = f"{float(found['gamma']):.6g}, by {choice.ranks.shape[1]} folds of the pairs"
    if wrong is not None:
        how["wrong pairs"] = str(wrong)
    if "solver" in found:
        how["solver"] = str(found["solver"])
    return how | {
        "iterations": str(found["n_iter"]),
        "rank": str(found["rank"]),
        "objective": f"{certificate['objective']:.10g}",
        "proven relative gap": report.proven(certificate),
    }


def _choice_details(choice: GammaChoice) -> Json:
    """Return the choice of gamma as JSON for programs; likelihoods that a callback prevented are None."""
    likely = [None if np.isnan(value) else value for value in choice.log_likelihood.tolist()]
    return {"gammas": choice.gammas.tolist(), "log_likelihood": likely, "ranks": choice.ranks.tolist()}


def _choice_table(choice: GammaChoice) -> list[str]:
    """Return a line for each gamma: the log-likelihood of the held-out pairs, and the mean rank."""
    lines = ["gamma by pairs held out", "".join(f"{name:>17}" for name in ("gamma", "log-likelihood", "rank"))]
    for place, (gamma, likely, ranks) in enumerate(
        zip(choice.gammas, choice.log_likelihood, choice.ranks, strict=True)
    ):
        numbers = (gamma, likely, ranks.mean())
        lines.append("".join(f"{number:>17.4g}" for number in numbers) + ("  chosen" if place == choice.best else ""))
    return lines


def _table(rows: list[Json]) -> list[str]:
    names = [name for name in COLUMNS if any(isinstance(row.get(name), (int, float)) for row in rows)]
    lines = ["".join(f"{name.replace('_', ' '):>17}" for name in names)]
    for row in rows:
        cells = (row.get(name) for name in names)
        lines.append("".join(f"{cell:>17.8g}" if isinstance(cell, (int, float)) else f"{'':>17}" for cell in cells))
    return lines


def newest(run: RunStore) -> Generation | None:
    """Return the last commit that is intact; None without."""
    if not (run.path / "generations").is_dir():
        return None
    return next(run.generations().newest_first(), None)


def open_factor(run: RunStore) -> Any:
    """Return the result (n, rank) in chunks of rows, not read yet; StoreError if it cannot be opened."""
    where = f"{run.path}/factor"
    try:
        array: Any = run.factor()
        shape, chunks = tuple(array.shape), tuple(array.chunks)
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise StoreError("the result cannot be opened", where=where, got=f"{type(error).__name__}: {error}") from error
    if len(shape) != 2 or min(shape) < 1 or chunks[1] != shape[1] or array.dtype not in (np.float64, np.float32):
        raise StoreError("not a factor", where=where, got=f"{array.dtype} {shape} in chunks {chunks}")
    return array


def factor_blocks(run: RunStore) -> Iterator[tuple[int, NDArray]]:
    """Yield (first row, rows) of the result by chunks; StoreError for a missing or damaged chunk."""
    array = open_factor(run)
    for lo in range(0, array.shape[0], array.chunks[0]):
        where = f"{run.path}/factor, rows from {lo}"
        try:
            rows = np.asarray(array[lo : lo + array.chunks[0]])
        except (OSError, ValueError, OverflowError, RuntimeError, KeyError, TypeError) as error:
            raise StoreError("a chunk of the result is damaged", where=where, got=error) from error
        # A missing chunk reads as NaN.
        if not np.isfinite(rows).all():
            raise StoreError("a chunk of the result is missing, or holds NaN", where=where)
        yield lo, rows

"""Loading of the learner from a run of pairs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from dkl.blocks.slabs.export import as_dask
from dkl.errors import StoreError
from dkl.estimators.base.run_arrays import result_in
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.pairwise.learner import PairwiseKernelLearner
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.store import graph_notes, load_choice, rows_of, stored_pairs
from dkl.problems.pairwise.certificate import Certificate
from dkl.stores.graph import read_csr
from dkl.stores.run import RunStore

IN_MEMORY = 64_000_000
"""Bytes of a factor that is loaded whole; larger ones stay on disk as dask arrays."""


def load_learner(run: RunStore, history: list[dict[str, object]]) -> PairwiseKernelLearner:
    """Load the fitted learner of a run from its folder and history; StoreError if incomplete or damaged.

    Its certificate has no `direction`, and it cannot `transform` new patterns: those it learned from are elsewhere.
    """
    known = load_choice(run)
    if known is not None:
        history = rows_of(known[0]) + history
    result, report = result_in(run, history), run.report()
    if known is not None:
        result = replace(result, wrong_pairs=known[1])
    stored = run.factor()
    factor = np.asarray(stored[...]) if stored.nbytes <= IN_MEMORY else as_dask(run)
    notes = graph_notes(run)
    graph = SimpleNamespace(
        laplacian=read_csr(str(run.path / "graph")),
        sigma=notes.get("sigma"),
        n_neighbors=notes.get("n_neighbors"),
        kind=notes.get("laplacian"),
    )
    try:
        lifts = {"lift": run.lift(), "pair_lift": run.pair_lift()}
        certificate = Certificate(**{**report["certificate"], "direction": np.empty(0), **lifts})
    except (KeyError, TypeError) as error:
        where = f"{run.path}/report.json"
        raise StoreError("a damaged report", where=where, got=f"{type(error).__name__}: {error}") from error
    learner = remade(PairwiseKernelLearner, PairwiseSettings, run.config["settings"])
    learner.scale_ = read_scale(run)
    learner.factor_, learner.certificate_, learner.result_, learner.graph_ = factor, certificate, result, graph
    learner.gamma_, learner.cv_ = float(report.get("gamma", learner.gamma)), None if known is None else known[0]
    learner.solver_ = str(report.get("solver", learner.solver))
    learner._pairs_kept = stored_pairs(run)
    learner.rank_, learner.n_iter_, learner.run_path_ = int(stored.shape[1]), result.n_iter, run.name
    return learner

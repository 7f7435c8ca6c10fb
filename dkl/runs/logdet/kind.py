"""Runs of LogDet kernel learning: a path of gammas, each kept once it is solved, then the kernel at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Place, Plan
from dkl.blocks.rows.predictions import predict_block
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import DklError, MemoryBudgetError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.base.prior_kernels import MOST_ROWS as LARGEST_BASIS
from dkl.estimators.base.prior_kernels import SQUARES
from dkl.estimators.base.run_arrays import read_history, read_points, trained_on
from dkl.estimators.logdet.model import check_model, kept_kernel, settings_in, stored_similarity
from dkl.estimators.logdet.plan import COMPONENT_SQUARES, LogDetSizes, plan_kernel
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import current_rss, format_bytes
from dkl.runs import report
from dkl.runs.estimate import own_rows
from dkl.runs.inputs.files import Lazy
from dkl.runs.inputs.readers import check_values
from dkl.runs.logdet import BASIS_SQUARES, DECLARATION, MATRIX_SQUARES, VERIFY_SQUARES
from dkl.runs.logdet.inputs import LogDetInputs, estimate_of, term_bytes
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.predictions import (
    GraphRows,
    Needs,
    PointSizes,
    Predictor,
    applied_bytes,
    graph_needs,
    kernel_needs,
    predictions,
    with_later,
)
from dkl.runs.registry import Estimate, Facts, Notes, RunKind
from dkl.runs.report import Comparison
from dkl.runs.stored import settings_of
from dkl.runs.supervised.inputs import check_kernels, check_small_matrix
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.logdet.learner import LogDetKernelLearner
    from dkl.plotting.canvas import Picture
    from dkl.stores.seals import Json


# -- plan ---------------------------------------------------------------------------------------------------------------


GRAPH_ENTRY = 16
"""Bytes of an entry of the graph's Laplacian on disk."""
ROW_COPIES = 4
"""Copies of the rows of the basis, in double precision, while `dkl verify` compares them."""


def _needs(found: LogDetInputs, sizes: LogDetSizes, settings: LogDetRunSettings) -> Needs:
    """Return the needs of the learned kernel's coordinates."""
    rows, k = found.rows, settings.n_components
    if settings.kernel == "laplacian":
        return graph_needs(rows.n, rows.n_features, k, settings.n_neighbors)
    points = PointSizes.of(rows, sizes.basis, is_precomputed=settings.kernel == "precomputed")
    return points.needs(k, 2 * 8 * k * sizes.basis)


def _verified(found: LogDetInputs, sizes: LogDetSizes, settings: LogDetRunSettings) -> int:
    """Return the bytes of `dkl verify`: matrices, rows, and the stored rows while they are compared."""
    n = sizes.n if settings.kernel in ("laplacian", "precomputed") else 0
    matrices = 8 * (VERIFY_SQUARES * sizes.p**2 + BASIS_SQUARES * sizes.basis**2 + MATRIX_SQUARES * n**2)
    return matrices + term_bytes(sizes) + own_rows(found.rows) + ROW_COPIES * 8 * sizes.basis * found.rows.n_features


# -- transform ----------------------------------------------------------------------------------------------------------


def predictor(run: RunStore) -> Predictor:
    """Return a predictor by the stored kernel; StoreError for parts that do not fit together."""
    settings, found = settings_in(run), run.read_arrays("model")
    check_model(run, found)
    n_features, k = trained_on(run)[1], len(found["offset"])
    if settings.kernel == "laplacian":
        where = f"{run.path}/model"
        similarity = stored_similarity(settings, found, where)
        kept = GraphRows(read_points(found, where), found["coordinates"], similarity)
        return kept.predictor(_summary(k))
    weights = found["weights"].copy()
    weights[np.searchsorted(found["basis"], found["touched"])] += found["weights_at_points"]
    kernel, folded = kept_kernel(settings, found), np.ascontiguousarray(weights.T)
    points = found["basis"] if kernel.is_precomputed else read_points(found, f"{run.path}/model")
    given = (predict_block, kernel, points, folded, -found["offset"])
    needs, of_kernel = kernel_needs(points, folded), kernel.is_precomputed
    return _predictor(n_features, k, lambda rows, some: rows.map(*given, only=some), needs, of_kernel)


def _predictor(n_features: int, k: int, blocks: Any, needs: Needs, of_kernel: bool) -> Predictor:
    def together(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return np.concatenate(blocks(rows, some))

    return Predictor(
        (k,), np.float64, lambda found: n_features, together, None, _summary(k), needs, "factor", of_kernel
    )


def _summary(k: int) -> str:
    return f"rows of {k} principal coordinates under the learned kernel"


# -- runs ---------------------------------------------------------------------------------------------------------------


class LogDetRuns(RunKind[LogDetRunSettings, LogDetInputs]):
    """Runs of TRIN in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_ROWS

    def plan(self, found: LogDetInputs, settings: LogDetRunSettings, session: Session) -> Plan:
        """Return the memory plan; MemoryBudgetError if it fits neither a worker nor this process."""
        own, sizes, place = own_rows(found.rows), found.sizes(settings), Place.of(session)
        made = plan_kernel(sizes, settings, session, has_folder=True, own_rows=own).plan
        later = {
            "dkl transform": applied_bytes(_needs(found, sizes, settings), found.rows, place),
            "dkl verify": _verified(found, sizes, settings),
        }
        return with_later(made, place, settings.memory_limit, later)

    def disk_bytes(self, found: LogDetInputs, settings: LogDetRunSettings, plan: Plan) -> int:
        """Return bytes of the model, two states of the path, held-out multipliers, and what K0 is made from."""
        sizes, n, k = found.sizes(settings), found.rows.n, settings.n_components
        vectors = 8 * (5 * len(settings.gammas) + 1) * sizes.c
        model = 8 * (sizes.p**2 + (sizes.basis + sizes.p + n) * (k + 2))
        graph = n * (2 * settings.n_neighbors + 1) * GRAPH_ENTRY if settings.kernel == "laplacian" else 0
        kept = 8 * n * n if settings.kernel == "precomputed" else found.rows.n * found.rows.row_bytes
        return vectors + model + graph + kept

    def estimate(self, found: LogDetInputs, settings: LogDetRunSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes, shown before the plan, and seconds, after it."""
        return estimate_of(found, settings, plan)

    def check_values(self, found: LogDetInputs, settings: LogDetRunSettings) -> None:
        """Raise InputError for a value that is not finite, or a kernel that is invalid on these rows."""
        check_values(found.rows)
        if settings.kernel not in ("laplacian", "precomputed"):
            check_kernels(found.rows, [Kernel(settings.kernel)])
        elif settings.kernel == "precomputed":
            check_small_matrix(found.rows)

    def fit(
        self,
        run: RunStore,
        found: Lazy[LogDetInputs],
        settings: LogDetRunSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.logdet.store import fit_in_run

        given = found()
        rows, own = given.rows.read(0, given.rows.n), own_rows(given.rows)
        side, codes = given.side(rows, settings), given.codes
        return fit_in_run(run, rows, side, codes, settings, session, watch, notes, own)

    def facts(self, run: RunStore) -> Facts:
        """Return state, sizes, the certificate at the last gamma, and a line for each gamma."""
        return facts_of(run, len(settings_in(run).gammas))

    def claims(self, run: RunStore, found: Lazy[LogDetInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.logdet import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> LogDetKernelLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.logdet.load import load_learner

        return load_learner(run)

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of `dkl transform` for the rows of a file."""
        return predictions(predictor(run), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[LogDetInputs]) -> Picture:
        """Return the learner's picture, with classes if the data still exist, and with any path."""
        import dkl.estimators.logdet.load  # noqa: F401  # what it imports is part of what this process holds

        _require_room(run, settings_of(run, {}))
        learner, y = self.load(run), None
        with suppress(DklError):  # labels are gone, or have changed
            codes = found().codes
            if codes is not None and len(codes) == int(learner._prior.training_rows.shape[0]):
                y = codes
        return learner.plot(y=y)


def _require_room(run: RunStore, settings: LogDetRunSettings) -> None:
    """Raise MemoryBudgetError if a picture, which recomputes K0, does not fit next to what is in memory."""
    n = trained_on(run)[0]
    whole = settings.kernel in ("laplacian", "precomputed")
    b = n if whole or n <= LARGEST_BASIS else int(run.report()["n_points"])
    needed = 8 * (SQUARES * n * n if whole else 0) + 8 * COMPONENT_SQUARES * b * b
    if settings.memory_limit is not None and current_rss() + needed > settings.memory_limit:
        got, wanted = f"memory_limit {format_bytes(settings.memory_limit)}", format_bytes(current_rss() + needed)
        raise MemoryBudgetError(f"drawing {b:,} rows does not fit", where="picture", got=got, wanted=wanted)


def facts_of(run: RunStore, count: int) -> Facts:
    """Return state, sizes, the certificate at the last gamma, and a line for each of the `count` gammas."""
    details = {"history": read_history(run) if run.is_complete else []}
    with report.damages(run):
        result, table = (_result(run.report()), _table(run.report())) if run.is_complete else ({}, [])
    return Facts(report.state(run, lambda under_way: _under_way(under_way, count)), {}, result, table, details)


def _under_way(run: RunStore, count: int) -> str:
    from dkl.estimators.logdet.store import Path, open_checkpoints  # compiles: only where a path is under way

    _, path = open_checkpoints(run).load(Path)
    if path is None:
        return "not started"
    return f"resumable; {len(path)} of {count} gammas solved"


def _result(found: Json) -> dict[str, str]:
    last = found["outputs"][-1]
    lines = {
        "constraints": f"{found['n_constraints']:,} on {found['n_points']:,} rows",
        "steps": f"{found['n_iter']}   {_way(last)} at the last gamma",
        "gamma": f"{last['gamma']:.6g}",
        **report.certificate(last),
    }
    if "n_components" in found:  # of a kernel, or of a metric that is cut
        of_metric = "" if "prior_error" in found else "   that keep most of the learned distances; the gap is of all"
        lines["components"] = f"{found['n_components']}{of_metric}"
    lines |= report.placement(found)
    if last["error"] is not None:
        of = "of the nearest neighbor among the labeled rows, which were learned from"
        lines["error"] = f"{last['error']:.4g}   {of}; {found['prior_error']:.4g} before"
    return lines


def _table(found: Json) -> list[str]:
    """Return a line for each gamma, in the order of the path."""
    has_errors = "prior_error" in found  # of a kernel
    error = f"{'error':>10}" if has_errors else ""
    head = f"{'gamma':>14}{'steps':>8}{'products':>10}{'objective':>20}{'gap':>12}{error}   {'outcome':<18}  steps by"
    return [head, *(_line(one, has_errors) for one in found["outputs"])]


def _line(one: Json, has_errors: bool) -> str:
    error = "" if one["error"] is None else f"{one['error']:.4g}"
    counts = f"{one['gamma']:>14.6g}{one['n_iter']:>8}{one['n_products']:>10}"
    error = f"{error:>10}" if has_errors else ""
    return f"{counts}{one['objective']:>20.10g}{one['relative_gap']:>12.3g}{error}   {one['outcome']:<18}  {_way(one)}"


def _way(one: Json) -> str:
    """Return whether primal or dual was solved (missing in old runs), and how Newton's systems were."""
    systems = {"auto": "both ways", "pcg": "conjugate gradients", "direct": "factorization", "paper": "as printed"}
    how = systems.get(one["solver"], one["solver"]) if one["n_iter"] else "no step"
    return ", ".join(word for word in (one.get("method", "").replace(", ", " then "), how) if word)

"""Runs of LogDet kernel learning: a path of gammas, each kept once it is solved, then the kernel at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory.plan import Place, Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DklError, InputError, MemoryBudgetError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.base.prior_kernels import MOST_ROWS as LARGEST_BASIS
from dkl.estimators.base.prior_kernels import SQUARES
from dkl.estimators.base.rules import PAIR_LOSSES, TRIPLET_LOSSES
from dkl.estimators.base.run_arrays import read_history, read_points, trained_on
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.model import check_model, kept_kernel, settings_in, stored_similarity
from dkl.estimators.logdet.plan import COMPONENT_SQUARES, LogDetSizes, flops_of, plan_kernel
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.problems.column_predict import predict_block
from dkl.resources import current_rss, format_bytes
from dkl.runs import report
from dkl.runs.estimate import flops_a_second, own_rows
from dkl.runs.inputs.files import Files, Lazy
from dkl.runs.inputs.readers import check_values, read_pairs, read_triplets, require_room_for_targets
from dkl.runs.kind import Estimate, Facts, Notes, RunKind
from dkl.runs.logdet import BASIS_SQUARES, DECLARATION, MATRIX_SQUARES, VERIFY_SQUARES
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.output.predictions import (
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
from dkl.runs.stored import settings_of
from dkl.runs.supervised.inputs import (
    check_kernels,
    check_small_matrix,
    file_of_targets,
    in_file,
    note_targets,
    read_class_labels,
    read_rows,
    where_targets,
)
from dkl.runs.verify.comparison import Comparison
from dkl.side_information.labels import encode_labels, refuse_one_class
from dkl.side_information.resolved_pairs import refuse_weights
from dkl.side_information.triplets import Triplets
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.logdet.learner import LogDetKernelLearner
    from dkl.linalg.rows.kmeans import Rows
    from dkl.plotting.canvas import Picture
    from dkl.stores.sealed_json import Json


# -- inputs -------------------------------------------------------------------------------------------------------------


KINDS = ("targets", "triplets", "pairs")


@dataclass(frozen=True)
class LogDetInputs:
    """Rows and what is known of them, one of: classes (n,) as numbers from 0, -1 for none; checked triplets or pairs."""

    files: Files
    rows: RowSource
    codes: NDArray[np.int64] | None
    given: SideInformation | None

    def fingerprints(self) -> Json:
        """Return the fingerprints of the input files for the run's configuration."""
        found = self.files.fingerprints(data=(self.rows.n, self.rows.n_features))
        return found if self.codes is not None else found | {"targets": None}

    def sizes(self, settings: LogDetRunSettings) -> LogDetSizes:
        """Return upper bounds on the problem's sizes: no value of the rows is needed."""
        from dkl.estimators.logdet.plan import sizes_of, sizes_of_labels

        kernel, loss, d = settings.kernel, settings.loss, self.rows.n_features
        if self.given is not None:
            return sizes_of(self.given, kernel, loss, d)
        assert self.codes is not None
        return sizes_of_labels(self.codes, settings.n_in, settings.n_out, kernel, loss, d)

    def side(self, X: Rows, settings: LogDetRunSettings) -> SideInformation:
        """Return the side information as given, or made of labels: triplets of nearest rows.
        X (n, d): the rows; or a kernel matrix (n, n), in whose space they are nearest."""
        if self.given is not None:
            return self.given
        assert self.codes is not None
        kernel = "precomputed" if settings.kernel == "precomputed" else None
        made = Triplets.from_labels(X, self.codes, settings.n_in, settings.n_out, kernel=kernel)
        labelled = int(np.count_nonzero(self.codes >= 0))
        return SideInformation(self.rows.n, made, made.to_pairs().check(self.rows.n), labelled, self.codes)


def read(files: Files, settings: LogDetRunSettings, *, values: bool) -> LogDetInputs:
    """Read rows and side information, or the rows' shape without `values`; InputError for a mismatch."""
    named = [name for name in KINDS if files.paths[name] is not None]
    if len(named) > 1:
        got, wanted = " and ".join(f"--{name}" for name in named), "one of the two"
        raise InputError("two kinds of side information", got=got, wanted=wanted)
    rows = read_rows(files, settings.memory_limit, values=values, is_kernel=settings.kernel == "precomputed")
    if rows.n < 2:
        got = f"shape {(rows.n, rows.n_features)}"
        raise InputError("too few rows", where=str(files["data"]), got=got, wanted="2 or more")
    if named in ([], ["targets"]):
        codes = _codes(files, rows.n, settings)
        note_targets(files, rows)
        return LogDetInputs(files, rows, codes, None)
    is_triplets = named == ["triplets"]
    _check_loss(settings.loss, "triplets" if is_triplets else "pairs", TRIPLET_LOSSES if is_triplets else PAIR_LOSSES)
    try:
        if is_triplets:
            triplets = read_triplets(files, rows).check(rows.n, settings.contradictions)
            found = SideInformation(rows.n, triplets=triplets)
        else:
            pairs = read_pairs(files, rows)
            refuse_weights(pairs, str(files["pairs"]))
            found = SideInformation(rows.n, pairs=pairs.check(rows.n, settings.contradictions))
    except InputError as error:
        if error.where not in KINDS + ("must_link", "cannot_link", "must_link, cannot_link"):
            raise
        where = f"{error.where} of {files[named[0]]}"
        raise type(error)(error.what, where=where, got=error.got, wanted=error.wanted, remedy=error.remedy) from error
    return LogDetInputs(files, rows, None, found)


def _check_loss(loss: str, given: str, losses: tuple[str, ...]) -> None:
    if loss not in losses:
        raise InputError(f"not a loss of {given}", where="--loss", got=loss, wanted=" or ".join(losses))


def _codes(files: Files, n: int, settings: LogDetRunSettings) -> NDArray[np.int64]:
    """Return class numbers (n,), -1 for no label; InputError if nothing can be learned from them."""
    try:
        file = file_of_targets(files)
    except InputError as error:
        remedy = "name a file of labels by --targets, or of --triplets or --pairs"
        raise InputError("nothing to learn from", where=error.where, remedy=remedy) from error
    require_room_for_targets(file, settings.memory_limit)
    labels, where = read_class_labels(files, n), where_targets(files)
    try:
        codes = encode_labels(labels)
        refuse_one_class(int(codes.max(initial=-1)) + 1, int(np.count_nonzero(codes >= 0)))
    except InputError as error:
        raise in_file(error, files, n) from error
    counts = np.bincount(codes[codes >= 0], minlength=1)
    if counts.max() < 2:
        got = f"{len(counts)} classes of one row each"
        raise InputError("no two rows of one class", where=where, got=got, wanted="a class of two rows or more")
    return codes


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
    return matrices + own_rows(found.rows) + ROW_COPIES * 8 * sizes.basis * found.rows.n_features


# -- info ---------------------------------------------------------------------------------------------------------------


def _under_way(run: RunStore) -> str:
    from dkl.estimators.logdet.store import Path, open_checkpoints  # compiles: only where a path is under way

    _, path = open_checkpoints(run).load(Path)
    if path is None:
        return "not started"
    return f"resumable; {len(path)} of {len(settings_in(run).gammas)} gammas solved"


def _result(found: Json) -> dict[str, str]:
    last = found["outputs"][-1]
    lines = {
        "constraints": f"{found['n_constraints']:,} on {found['n_points']:,} rows",
        "steps": f"{found['n_iter']}   {_way(last)} at the last gamma",
        "gamma": f"{last['gamma']:.6g}",
        **report.certificate(last),
        "components": str(found["n_components"]),
        **report.placement(found),
    }
    if last["error"] is not None:
        of = "of the nearest neighbor among the labeled rows, which were learned from"
        lines["error"] = f"{last['error']:.4g}   {of}; {found['prior_error']:.4g} before"
    return lines


def _table(found: Json) -> list[str]:
    """Return a line for each gamma, in the order of the path."""
    head = f"{'gamma':>14}{'steps':>8}{'products':>10}{'objective':>20}{'gap':>12}{'error':>10}   {'outcome':<18}  steps by"
    return [head, *map(_line, found["outputs"])]


def _line(one: Json) -> str:
    error = "" if one["error"] is None else f"{one['error']:.4g}"
    counts = f"{one['gamma']:>14.6g}{one['n_iter']:>8}{one['n_products']:>10}"
    return (
        f"{counts}{one['objective']:>20.10g}{one['relative_gap']:>12.3g}{error:>10}   {one['outcome']:<18}  {_way(one)}"
    )


def _way(one: Json) -> str:
    """Return whether primal or dual was solved (missing in old runs), and how Newton's systems were."""
    systems = {"auto": "both ways", "pcg": "conjugate gradients", "direct": "factorization", "paper": "as printed"}
    how = systems.get(one["solver"], one["solver"]) if one["n_iter"] else "no step"
    return ", ".join(word for word in (one.get("method", "").replace(", ", " then "), how) if word)


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
        sizes, rows, count = found.sizes(settings), found.rows, len(settings.gammas)
        before = (
            f"{rows.n:,} rows, {rows.n_features:,} features; up to {sizes.c:,} constraints on {sizes.p:,} rows; "
            f"{count} value{'s' if count > 1 else ''} of gamma"
        )
        where = "a worker" if plan.own_bytes else "this process"
        after = f"about {flops_of(sizes) / flops_a_second():.2g} s a Newton step in {where}, by a product that was measured here; up to"
        return Estimate([before], [after, f"{settings.max_iter} steps at each gamma, commonly 5 to 40"])

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
        return fit_in_run(run, rows, side, codes, settings, session, watch, notes, own).result

    def facts(self, run: RunStore) -> Facts:
        """Return state, sizes, the certificate at the last gamma, and a line for each gamma."""
        details = {"history": read_history(run) if run.is_complete else []}
        with report.damages(run):
            result, table = (_result(run.report()), _table(run.report())) if run.is_complete else ({}, [])
        return Facts(report.state(run, _under_way), {}, result, table, details)

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

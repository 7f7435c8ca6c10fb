"""Rows of a run of LogDet learning, and what is known of them: labels, triplets, pairs or constraints; of a kernel or a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.estimators.base.rules import MATRIX_LOSSES, PAIR_LOSSES, TRIPLET_LOSSES
from dkl.estimators.base.side_information import SideInformation, refuse_weights
from dkl.estimators.logdet.plan import LogDetSizes, flops_of
from dkl.estimators.logdet.settings import LogDetMetricRunSettings, LogDetRunSettings
from dkl.runs.estimate import flops_a_second
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.readers import (
    naming_the_file,
    read_constraints,
    read_pairs,
    read_triplets,
    require_room_for_targets,
)
from dkl.runs.registry import Estimate
from dkl.runs.supervised.inputs import (
    file_of_targets,
    in_file,
    note_targets,
    read_class_labels,
    read_rows,
    where_targets,
)
from dkl.side_information.labels import encode_labels, refuse_one_class
from dkl.side_information.triplets import Triplets

if TYPE_CHECKING:
    from dkl.linalg.rows.kmeans import Rows
    from dkl.stores.seals import Json


AnyRunSettings: TypeAlias = LogDetRunSettings | LogDetMetricRunSettings
KINDS = ("targets", "triplets", "pairs", "constraints")

LOSSES = {"triplets": TRIPLET_LOSSES, "pairs": PAIR_LOSSES, "constraints": MATRIX_LOSSES}
VERIFY_TERMS = 10
"""Numbers that `dkl verify` holds for each entry of the largest constraint, in each of them."""


@dataclass(frozen=True)
class LogDetInputs:
    """Rows and what is known of them, one of: classes (n,) as numbers from 0, -1 for none; checked triplets, pairs or constraints."""

    files: Files
    rows: RowSource
    codes: NDArray[np.int64] | None
    given: SideInformation | None

    def fingerprints(self) -> Json:
        """Return the fingerprints of the input files for the run's configuration."""
        found = self.files.fingerprints(data=(self.rows.n, self.rows.n_features))
        # A y next to the rows is not learned from where triplets or pairs are: the run must not depend on it.
        return found if self.codes is not None else found | {"targets": None}

    def sizes(self, settings: AnyRunSettings) -> LogDetSizes:
        """Return upper bounds on the problem's sizes: no value of the rows is needed."""
        from dkl.estimators.logdet.plan import sizes_of, sizes_of_labels

        kernel, loss, d = settings.kernel, settings.loss, self.rows.n_features
        if self.given is not None:
            return sizes_of(self.given, kernel, loss, d)
        assert self.codes is not None
        return sizes_of_labels(self.codes, settings.n_in, settings.n_out, kernel, loss, d)

    def side(self, X: Rows, settings: AnyRunSettings) -> SideInformation:
        """Return the side information as given, or made of labels: triplets of nearest rows.
        X (n, d): the rows; or a kernel matrix (n, n), in whose space they are nearest."""
        if self.given is not None:
            return self.given
        assert self.codes is not None
        # Nearest in the kernel's own space only where there are no rows: triplets of rows are by plain distances (Li et al., 6.2).
        kernel = "precomputed" if settings.kernel == "precomputed" else None
        made = Triplets.from_labels(X, self.codes, settings.n_in, settings.n_out, kernel=kernel)
        labelled = int(np.count_nonzero(self.codes >= 0))
        return SideInformation(self.rows.n, made, made.to_pairs().check(self.rows.n), labelled, self.codes)


def read(files: Files, settings: AnyRunSettings, *, values: bool) -> LogDetInputs:
    """Read rows and side information, or the rows' shape without `values`; InputError for a mismatch."""
    named = [name for name in KINDS if files.paths[name] is not None]
    if len(named) > 1:
        got, wanted = " and ".join(f"--{name}" for name in named), "one of these"
        raise InputError("two kinds of side information", got=got, wanted=wanted)
    rows = read_rows(files, settings.memory_limit, values=values, is_kernel=settings.kernel == "precomputed")
    if rows.n < 2:
        got = f"shape {(rows.n, rows.n_features)}"
        raise InputError("too few rows", where=str(files["data"]), got=got, wanted="2 or more")
    if isinstance(settings, LogDetMetricRunSettings):
        settings.check_columns(rows.n_features, "--n-components")
    if named in ([], ["targets"]):
        codes = _codes(files, rows.n, settings)
        note_targets(files, rows)
        return LogDetInputs(files, rows, codes, None)
    _check_loss(settings.loss, named[0], LOSSES[named[0]])
    with naming_the_file(files[named[0]]):
        if named == ["triplets"]:
            triplets = read_triplets(files, rows).check(rows.n, settings.contradictions)
            found = SideInformation(rows.n, triplets=triplets)
        elif named == ["constraints"]:
            found = SideInformation(rows.n, matrices=read_constraints(files, rows, settings.memory_limit))
        else:
            pairs = read_pairs(files, rows)
            refuse_weights(pairs, str(files["pairs"]))
            found = SideInformation(rows.n, pairs=pairs.check(rows.n, settings.contradictions))
    return LogDetInputs(files, rows, None, found)


def _check_loss(loss: str, given: str, losses: tuple[str, ...]) -> None:
    if loss not in losses:
        raise InputError(f"not a loss of {given}", where="--loss", got=loss, wanted=" or ".join(losses))


def _codes(files: Files, n: int, settings: AnyRunSettings) -> NDArray[np.int64]:
    """Return class numbers (n,), -1 for no label; InputError if nothing can be learned from them."""
    try:
        file = file_of_targets(files)
    except InputError as error:
        remedy = "name a file of labels by --targets, or of --triplets, --pairs or --constraints"
        raise InputError("nothing to learn from", where=error.where, remedy=remedy) from error
    require_room_for_targets(file, settings.memory_limit)
    labels, where = read_class_labels(files, n), where_targets(files)
    try:
        codes = encode_labels(labels)
        refuse_one_class(int(codes.max(initial=-1)) + 1, int(np.count_nonzero(codes >= 0)))
    except InputError as error:
        raise in_file(error, files, n) from error
    counts = np.bincount(codes[codes >= 0], minlength=1)
    # No anchor has a similar row then, and there is no triplet.
    if counts.max() < 2:
        got = f"{len(counts)} classes of one row each"
        raise InputError("no two rows of one class", where=where, got=got, wanted="a class of two rows or more")
    return codes


def term_bytes(sizes: LogDetSizes) -> int:
    """Return the bytes that `dkl verify` takes for constraints of different numbers of entries, each as the largest; 0 for others."""
    return 0 if sizes.n_terms is None else 8 * VERIFY_TERMS * sizes.c * sizes.widest


def estimate_of(found: LogDetInputs, settings: AnyRunSettings, plan: Plan, rank: int | None = None) -> Estimate:
    """Return sizes, shown before the plan, and seconds, after it; rank: of K0's factor, where it has one."""
    sizes, rows, count = found.sizes(settings), found.rows, len(settings.gammas)
    before = (
        f"{rows.n:,} rows, {rows.n_features:,} features; up to {sizes.c:,} constraints on {sizes.p:,} rows; "
        f"{count} value{'s' if count > 1 else ''} of gamma"
    )
    where = "a worker" if plan.own_bytes else "this process"
    after = f"about {flops_of(sizes, rank) / flops_a_second():.2g} s a Newton step in {where}, by a product that was measured here; up to"
    return Estimate([before], [after, f"{settings.max_iter} steps at each gamma, commonly 5 to 40"])


METRIC_SQUARES, METRIC_ROWS, METRIC_TERMS = 14, 5, 40
"""Arrays d x d, of all rows and of those that constraints touch, and numbers a constraint, that `dkl verify` holds at a time."""
CUT_SQUARES = 6
"""Arrays d x d that it holds more where the metric is cut to some components."""


def verified_bytes(sizes: LogDetSizes, *, is_cut: bool) -> int:
    """Return the bytes of `dkl verify`, without the rows as they are read; is_cut: the metric is cut to some components."""
    d, squares = sizes.d, METRIC_SQUARES + CUT_SQUARES * is_cut
    numbers = squares * d**2 + METRIC_ROWS * (sizes.n + sizes.p) * d + METRIC_TERMS * sizes.c
    return 8 * numbers + term_bytes(sizes)


def dense(rows: Any) -> NDArray[np.float64]:
    """Return rows (n, d) as a dense array in double precision."""
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows, np.float64)

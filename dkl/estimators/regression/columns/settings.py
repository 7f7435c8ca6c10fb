"""Settings of every regressor on kernel columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from dkl.estimators.base.rules import (
    AN_ARRAY,
    DICTIONARY,
    KERNEL,
    KERNEL_FUNCTION,
    Either,
    Flag,
    Integer,
    NotGiven,
    Real,
    Size,
    Word,
)
from dkl.estimators.base.settings import NO_OPTION, RESUMABLE, Flagged, InPython, RecordedAs, Settings, Standardize


@dataclass(frozen=True)
class ColumnSettings(Settings):
    """Settings of the pass over the rows. columns: "given" for those that were given as data, not here."""

    kernel: Annotated[Any, KERNEL, "As scikit-learn calls it.", InPython(Either(KERNEL, KERNEL_FUNCTION))] = "rbf"
    gamma: Annotated[
        float | str | None,
        Either(Real(above=0), Word("scale", "auto"), NotGiven()),
        "Of the kernel; scale: 1 / (features * variance), auto: 1 / features.",
    ] = "scale"
    degree: Annotated[float, Real(least=0), "Of the polynomial kernel."] = 3
    coef0: Annotated[float, Real(), "Of the polynomial and sigmoid kernels."] = 1
    standardize: Standardize = "auto"
    kernel_params: Annotated[dict[str, Any], DICTIONARY, "Of a kernel function.", NO_OPTION] = field(
        default_factory=dict
    )
    n_columns: Annotated[int, Integer(1), "Candidate columns."] = 1000
    columns: Annotated[
        str,
        Word("uniform", "rpcholesky"),
        "How they are drawn.",
        InPython(Either(Word("uniform", "rpcholesky"), AN_ARRAY)),
        RecordedAs("given"),
    ] = "uniform"
    fit_intercept: Annotated[
        bool,
        Flag(),
        "Whether a constant is fitted.",
        Flagged("--no-intercept", "Fit no constant [a constant is fitted]."),
    ] = True
    dtype: Annotated[str, Word("float64", "float32"), "Of the columns."] = "float64"
    seed: Annotated[int, Integer(0), "Seed of columns, folds and coordinates."] = 0
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None
    checkpoint_every: Annotated[
        int | str, Either(Integer(1), Word("auto")), "Waves of rows between commits; auto: by time.", RESUMABLE
    ] = "auto"
    store_columns: Annotated[bool, Flag(), "Keep the columns in the run's folder."] = False

    @property
    def n_folds(self) -> int:
        """Return the number of parts of the rows whose sums are kept apart."""
        return 1

    @property
    def share_held_out(self) -> float:
        """Return the share of the rows that the quality is measured on."""
        return 0.0

    @property
    def whole_columns(self) -> bool:
        """Return whether the solver takes the columns themselves, not sums of them."""
        return False

    @property
    def between_columns(self) -> bool:
        """Return whether the kernel between the columns' points, (M, M), is wanted too."""
        return False

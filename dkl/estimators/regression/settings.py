"""The settings of `LowRankKernelRegressor` and of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.errors import InputError
from dkl.estimators.base.rules import DICTIONARY, Either, Folder, Instance, Integer, Real, Word
from dkl.estimators.base.settings import EVERYWHERE, RESUMABLE, SHARE_HELD_OUT, InPython
from dkl.estimators.regression.columns.settings import ColumnSettings

A_SPLITTER = Instance(lambda value: hasattr(value, "split") or hasattr(value, "__iter__"), "a splitter, or splits")

BY_COLUMNS = ("paper", "printed")
"""Solvers on the columns themselves: the paper's Algorithm 2, and as its slips have it."""


@dataclass(frozen=True)
class RegressionSettings(ColumnSettings):
    """Settings of SLKL: nu a number or "cv"; lam the paper's lambda."""

    nu: Annotated[
        float | str, Either(Real(above=0), Word("cv")), "The larger, the fewer columns; cv: by cross-validation."
    ] = "cv"
    lam: Annotated[float, Real(above=0), "The paper's lambda; lam * nu alone matters."] = 1.0
    solver: Annotated[
        str,
        Word("active-set", "exact", "newton"),
        "Newton steps on the active set, or coordinate descent.",
        InPython(Word("active-set", "exact", "newton", *BY_COLUMNS)),
    ] = "active-set"
    sampling: Annotated[str, Word("uniform", "greedy"), "Of coordinates."] = "uniform"
    stopping: Annotated[str, Word("gap", "paper"), "Proven gap, or the paper's rule."] = "gap"
    tol: Annotated[float, Real(least=0), "Relative gap to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most steps of the solver.", RESUMABLE] = 10_000
    cv: Annotated[int, Integer(2), "Folds of cross-validation.", InPython(Either(Integer(2), A_SPLITTER))] = 5
    n_nus: Annotated[int, Integer(1), "Values of nu on its path of nine decades."] = 60
    refit: Annotated[
        str,
        Word("auto", "active", "all", "best", "never"),
        "A ridge on the lasso's columns in its place; auto: where cross-validation favors it; best: on all M too.",
    ] = "auto"
    holdout: Annotated[float, SHARE_HELD_OUT, "Share of the rows that the quality is measured on; 0: none."] = 0.1

    absent = {"refit": "never", "holdout": 0.0, "standardize": False}
    in_python = {**EVERYWHERE, "kernel_params": (None, DICTIONARY), "work_dir": (None, Folder())}

    def check_together(self) -> None:
        """Check rules across settings; InputError if violated.

        The paper's stopping rule is one of coordinate steps; a refit needs folds; Algorithm 2's result is not changed.
        """
        if self.stopping == "paper" and self.solver == "active-set":
            raise InputError(
                "the paper's rule counts coordinate steps", where="stopping", got=self.stopping,
                wanted="solver exact or newton",
            )  # fmt: skip
        if self.refit in ("active", "all") and (self.nu != "cv" or self.whole_columns):
            got = f"refit={self.refit!r}, nu={self.nu!r}, solver={self.solver!r}"
            raise InputError(
                "the ridge is chosen by the folds that choose nu", where="refit", got=got,
                wanted='nu="cv", and a solver on sums',
            )  # fmt: skip

    @property
    def n_folds(self) -> int:
        """Return the number of folds whose sums are kept apart: those of cross-validation if nu is chosen."""
        return self.cv if self.nu == "cv" else 1

    @property
    def share_held_out(self) -> float:
        """Return the share of the rows that the quality is measured on."""
        return self.holdout

    @property
    def ends_by_the_papers_rule(self) -> bool:
        """Return whether the last M steps decide when to end, and not a gap."""
        return self.stopping == "paper" or self.whole_columns

    @property
    def whole_columns(self) -> bool:
        """Return whether the solver takes the columns (n, M): only the paper's Algorithm 2 does."""
        return self.solver in BY_COLUMNS

    @property
    def between_columns(self) -> bool:
        """Return whether a refit's ridge needs the kernel between the columns, which penalizes it."""
        return self.nu == "cv" and self.refit != "never" and not self.whole_columns

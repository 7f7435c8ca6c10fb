"""The settings of `OptimalNeighborhoodSVC` and of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dkl.errors import InputError
from dkl.estimators.base.rules import (
    DICTIONARY,
    KERNEL,
    KERNEL_FUNCTION,
    KERNEL_LIST,
    NAMED_KERNELS,
    Either,
    Folder,
    Integer,
    NotGiven,
    Real,
    Size,
    Word,
)
from dkl.estimators.base.settings import (
    ANYTHING,
    EVERYWHERE,
    RESUMABLE,
    SHARE_HELD_OUT,
    InPython,
    Settings,
    Standardize,
)


@dataclass(frozen=True)
class SVCSettings(Settings):
    """Settings of ONK: the box C, the distance's weight rho, and a kernel or several."""

    C: Annotated[float, Real(above=0), "Bound of the coefficients, as in SVC."] = 1.0
    rho: Annotated[
        float | str,
        Either(Real(above=0), Word("scale")),
        "The smaller, the further the kernel may be learned from the given; scale: by rows and C.",
    ] = "scale"
    kernel: Annotated[
        Any,
        Either(KERNEL, NAMED_KERNELS),
        "As scikit-learn calls it; several are combined.",
        InPython(Either(KERNEL, KERNEL_FUNCTION, KERNEL_LIST)),
    ] = "rbf"
    gamma: Annotated[float | str, Either(Real(above=0), Word("scale", "auto")), "Of the kernel."] = "scale"
    degree: Annotated[float, Real(least=0), "Of the polynomial kernel."] = 3
    coef0: Annotated[float, Real(), "Of the polynomial and sigmoid kernels."] = 0.0
    standardize: Standardize = "auto"
    solver: Annotated[str, Word("accelerated", "gradient", "level"), "How machines are solved."] = "accelerated"
    stopping: Annotated[
        str, Word("gap", "paper"), "Proven relative gap, or as the paper's algorithms end: solver gradient or level."
    ] = "gap"
    tau: Annotated[float, Real(above=0, below=1), "Place of the level method's level between its bounds."] = 0.5
    multi_class: Annotated[str, Word("ovo", "ovr"), "One against one, or the rest."] = "ovo"
    class_weight: Annotated[
        Any, Either(Word("balanced"), NotGiven()), "C by the classes' sizes.", InPython(ANYTHING)
    ] = None
    tol: Annotated[float, Real(least=0), "Relative gap, or change, to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most gradient steps of a machine.", RESUMABLE] = 10_000
    holdout: Annotated[float, SHARE_HELD_OUT, "Share of the rows that the quality is measured on; 0: none."] = 0.1
    dtype: Annotated[str, Word("float64", "float32"), "Of the kernel matrix."] = "float64"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None
    work_dir: Annotated[Any, Folder(), "Where a kernel matrix too large for memory may stand meanwhile."] = None
    checkpoint_every: Annotated[
        int | str, Either(Integer(1), Word("auto")), "Solver's rounds between commits; auto: by time.", RESUMABLE
    ] = "auto"

    def check_together(self) -> None:
        """Raise InputError where the paper's stop is asked of what is not the paper's algorithm."""
        if self.stopping == "paper" and (self.solver == "accelerated" or self.dtype != "float64"):
            raise InputError(
                "the paper's rule is one of its two algorithms, in double precision", where="stopping",
                got=f"solver {self.solver}, dtype {self.dtype}", wanted="solver gradient or level, dtype float64",
            )  # fmt: skip

    absent = {"holdout": 0.0, "standardize": False}
    in_python = {
        **EVERYWHERE,
        "kernel_params": (None, DICTIONARY),
        "decision_function_shape": ("ovr", Word("ovr", "ovo")),
    }
    not_in_python = ("checkpoint_every",)

"""Settings of `KernelPCA`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dkl.estimators.base.kernels import KERNEL, KERNEL_FUNCTION
from dkl.estimators.base.rules import DICTIONARY, Either, Integer, NotGiven, Real, Size, Word
from dkl.estimators.base.settings import EVERYWHERE, SHARE_HELD_OUT, InPython, Settings
from dkl.estimators.base.standardize_setting import Standardize


@dataclass(frozen=True)
class ComponentsSettings(Settings):
    """Settings of kernel principal components: their number, the kernel, the tolerance."""

    n_components: Annotated[int, Integer(1), "Components."] = 2
    kernel: Annotated[
        Any, KERNEL, "As scikit-learn calls it.", InPython(Either(KERNEL, KERNEL_FUNCTION))
    ] = "rbf"  # fmt: skip
    gamma: Annotated[float | str | None, Either(Real(above=0), Word("scale", "auto"), NotGiven()), "Of the kernel."] = (
        None
    )
    degree: Annotated[float, Real(least=0), "Of the polynomial kernel."] = 3
    coef0: Annotated[float, Real(), "Of the polynomial and sigmoid kernels."] = 1.0
    standardize: Standardize = "auto"
    tol: Annotated[float, Real(least=0), "Residual to end at, of the largest eigenvalue."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most products with the kernel matrix."] = 100
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1
    dtype: Annotated[str, Word("float64", "float32"), "Of the kernel matrix."] = "float64"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = {**EVERYWHERE, "kernel_params": (None, DICTIONARY)}

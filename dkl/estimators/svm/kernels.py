"""The kernels that a classifier's settings name."""

from __future__ import annotations

from typing import Any

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.estimators.base.kernel_width import width_of
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import Kernel


def kernel_names(settings: SVCSettings) -> list[Any]:
    """Return the names or functions of the kernel, or of each of several, as a list."""
    return list(settings.kernel) if isinstance(settings.kernel, (list, tuple)) else [settings.kernel]


def refuse_several(settings: SVCSettings, names: list[Any]) -> None:
    """Raise InputError for several kernels where the solver takes one."""
    if settings.solver == "level" and len(names) > 1:
        raise InputError("one kernel only", where="solver level", got=f"{len(names)} kernels")


def kernels_for_plans(settings: SVCSettings) -> list[Kernel]:
    """Return the kernels without their widths, for which rows would have to be read."""
    names = kernel_names(settings)
    refuse_several(settings, names)
    return [Kernel(name, None, settings.degree, settings.coef0) for name in names]


def kernels_of(
    settings: SVCSettings, source: RowSource, kernel_params: dict[str, object] | None = None
) -> list[Kernel]:
    """Return the kernel, or each of several with its own parameters, with the widths from the rows."""
    names = kernel_names(settings)
    refuse_several(settings, names)
    common = {
        "gamma": settings.gamma,
        "degree": settings.degree,
        "coef0": settings.coef0,
        "kernel_params": kernel_params,
    }
    made = []
    for item in names:
        chosen = {**common, **(item if isinstance(item, dict) else {"kernel": item})}
        gamma = width_of(chosen["kernel"], chosen["gamma"], source)
        params = dict(chosen["kernel_params"] or {})
        of_matrices = callable(chosen["kernel"])  # as SVC calls it
        made.append(Kernel(chosen["kernel"], gamma, chosen["degree"], chosen["coef0"], params, of_matrices))
    return made

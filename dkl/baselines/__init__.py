"""The methods that the papers compare with, behind the estimators' face.

    from dkl.baselines import KernelRidgeRegressor, NystromRegressor, UniformWeightsRegressor

They are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dkl.baselines.kernel_ridge import KernelRidgeRegressor
    from dkl.baselines.ridge_on_columns import NystromRegressor, UniformWeightsRegressor

_PLACES = {
    "KernelRidgeRegressor": "dkl.baselines.kernel_ridge",
    "NystromRegressor": "dkl.baselines.ridge_on_columns",
    "UniformWeightsRegressor": "dkl.baselines.ridge_on_columns",
}

__all__ = ["KernelRidgeRegressor", "NystromRegressor", "UniformWeightsRegressor"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'dkl.baselines' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])

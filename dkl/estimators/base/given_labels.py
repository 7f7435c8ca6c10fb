"""Labels and targets as estimators are given them: arrays, or paths of arrays."""

from __future__ import annotations

import os
from typing import Any

from dkl.stores.rows import whole_array


def given_labels(y: Any, where: str = "y") -> Any:
    """Return labels or targets as given; of a path, the array in its file. Raises InputError.

    The file is a .npy file or a zarr array.
    """
    return whole_array(y, where) if isinstance(y, (str, os.PathLike)) else y

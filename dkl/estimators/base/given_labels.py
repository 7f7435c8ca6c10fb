"""Labels and targets as estimators are given them: arrays, or paths of arrays."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from dkl.stores.rows import whole_array

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import UserLabels


def given_labels(y: UserLabels, where: str = "y") -> UserLabels:
    """Return labels or targets as given; of a path, the array in its file. Raises InputError.

    The file is a .npy file or a zarr array.
    """
    return whole_array(y, where) if isinstance(y, (str, os.PathLike)) else y

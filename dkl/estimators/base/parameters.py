"""Parameters that several estimators have: `client`, and `kernel`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator

from dkl.estimators.base.validation import is_precomputed

if TYPE_CHECKING:
    from typing import Self

    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import UserKernel

# Estimators with a `client` parameter: a live connection, which can be neither copied nor pickled.


class ClientParameter(BaseEstimator):
    """Base of estimators with a client, which clones share; a pickle omits it and finds the current one."""

    client: object

    def __sklearn_clone__(self) -> Self:
        bare = copy.copy(self)
        bare.client = None
        cloned = super(ClientParameter, bare).__sklearn_clone__()
        cloned.client = self.client
        return cloned

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "client": None}


# Estimators with a `kernel` parameter, which may say that X is the kernel matrix itself.


class KernelParameter(ClientParameter):
    """Base of estimators with a kernel: rows dense or sparse, or (kernel="precomputed") a matrix of pairs.

    The matrix is dense, and a split cuts it on both sides.
    """

    kernel: UserKernel

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._is_precomputed
        tags.input_tags.pairwise = self._is_precomputed
        return tags

    @property
    def _is_precomputed(self) -> bool:
        return is_precomputed(self)

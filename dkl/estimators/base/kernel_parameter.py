"""Estimators with a `kernel` parameter, which may say that X is the kernel matrix itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkl.estimators.base.client_parameter import ClientParameter
from dkl.estimators.base.validation import is_precomputed

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import UserKernel


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

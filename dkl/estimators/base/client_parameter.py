"""Estimators with a `client` parameter: a live connection, which can be neither copied nor pickled."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator

if TYPE_CHECKING:
    from typing import Self


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

"""Estimators with a `client` parameter: a live connection, which can be neither copied nor pickled."""

from __future__ import annotations

import copy
from typing import Any

from sklearn.base import BaseEstimator


class ClientParameter(BaseEstimator):
    """Base of estimators with a client, which clones share; a pickle omits it and finds the current one."""

    client: Any

    def __sklearn_clone__(self) -> Any:
        bare = copy.copy(self)
        bare.client = None
        cloned = super(ClientParameter, bare).__sklearn_clone__()
        cloned.client = self.client
        return cloned

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "client": None}

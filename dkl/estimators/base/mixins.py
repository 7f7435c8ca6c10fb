"""Bases and mixins of several estimators: the parameters `client` and `kernel`, values of learned kernels, lazy results."""

from __future__ import annotations

import copy
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from dkl.blocks.rows.predictions import lazy_kernel, lazy_results, lazy_rows, naming_z
from dkl.blocks.session import Session, require_sendable
from dkl.errors import InputError
from dkl.estimators.base.validation import check_columns, is_precomputed
from dkl.io.plain_arrays import refuse_overflow

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserKernel, UserRows


# -- parameters --------------------------------------------------------------------------------------------------------
# Estimators with a `client` parameter: a live connection, which can be neither copied nor pickled.


class ClientParameter(BaseEstimator):
    """Base of estimators with a client, which clones share; a pickle omits it and finds the current one."""

    client: object

    SENT: ClassVar[tuple[str, ...]] = ()
    """Parameters that may be functions, or hold such, which workers call."""

    def _session(self, run: Path | None = None) -> Session:
        """Return the session of the learner's client, or of its threads; run: the folder that the fit is kept in, for its name."""
        work = type(self).__name__ + (f"-{run.name}" if run else "")
        session = Session.find(self.client, threads=getattr(self, "n_jobs", None), work=work)
        for name in self.SENT if session.is_distributed else ():
            if not isinstance(value := getattr(self, name), str):
                require_sendable(value, name)
        return session

    def __sklearn_clone__(self) -> Self:
        # scikit-learn's clone would deep-copy the connection, which cannot be copied.
        bare = copy.copy(self)
        bare.client = None
        cloned = super(ClientParameter, bare).__sklearn_clone__()
        cloned.client = self.client
        return cloned

    def __copy__(self) -> Self:
        """Return a copy that has the client, too: `path` fits copies."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

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


# -- kernel values -----------------------------------------------------------------------------------------------------


class CoordinateKernel:
    """Mixin of learners whose kernel is the inner product of the coordinates that `transform` returns."""

    def kernel_matrix(self, X: UserRows, Z: UserRows = None, *, lazy: bool = False) -> Any:
        """Return the learned kernel k(x, z) = t(x)' t(z), t the coordinates that `transform` returns.

        Parameters
        ----------
        X : (m, d) rows, as in `transform`
        Z : (l, d) rows, optional
            Left out, X itself.
        lazy : bool
            Whether to return a dask array, whose blocks are computed when they are read. The coordinates are computed now.

        Returns
        -------
        (m, l) array, or dask array
            Positive semidefinite where Z is left out, of the rank of the coordinates at most.

        Raises
        ------
        InputError
            For rows that `transform` refuses, and values so large that the kernel overflows.

        Examples
        --------
        >>> import numpy as np
        >>> from dkl import KernelPCA
        >>> X = np.eye(4)
        >>> model = KernelPCA(n_components=2, random_state=0).fit(X)
        >>> bool(np.allclose(model.kernel_matrix(X), model.transform(X) @ model.transform(X).T))
        True
        """
        left = np.asarray(self.transform(X), np.float64)  # type: ignore[attr-defined]
        with naming_z():
            right = left if Z is None else np.asarray(self.transform(Z), np.float64)  # type: ignore[attr-defined]
        if lazy:
            return lazy_kernel(_products, left, right, is_of_user=False)
        with np.errstate(over="ignore", invalid="ignore"):  # refused by value
            found = _products(left, None if Z is None else right)
        refuse_overflow(found, None)
        return found


def _products(left: Any, right: Any) -> NDArray[np.float64]:
    """Return the inner products (m, l) of two sets of coordinates, or of one (m, m), symmetric to the bit."""
    return np.asarray(left @ (left if right is None else right).T)


def numbered(number: int | None, count: int, where: str) -> int:
    """Return the number of the one of `count` kernels that is asked for; InputError where it is not one, or not said."""
    wanted = f"0 to {count - 1}"
    if number is None and count > 1:
        raise InputError(f"each {where} has its own kernel", where=where, wanted=wanted)
    found = 0 if number is None else number
    if isinstance(found, bool) or not isinstance(found, Integral) or not 0 <= found < count:
        raise InputError(f"no such {where}", where=where, got=repr(number), wanted=wanted)
    return int(found)


def lazily(learner: BaseEstimator, verb: str, X: Any, like: NDArray) -> Any:
    """Return learner.verb(X) of a Dask array or data frame X as a dask array by the chunks of its rows; nothing is computed.

    verb: name of a method; like: an empty array, (0,) or (0, k), of the type of its results. Each block has the bytes that the
    method returns for the block alone. Raises InputError for what is not two-dimensional, has no rows, or columns of other names or
    in another number than those learned from; values are checked when they are computed.
    """
    rows = lazy_rows(X)
    check_columns(learner, X, int(rows.shape[1]))
    model = copy.copy(learner)
    model.__dict__.pop("feature_names_in_", None)  # checked: blocks have no names
    # What a fit needs alone; and Dask has a thread for each block.
    model.__dict__.update({"client": None, "callbacks": None} | ({"n_jobs": 1} if hasattr(model, "n_jobs") else {}))
    return lazy_results(model, verb, rows, like)

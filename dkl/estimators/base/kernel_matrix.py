"""Values of learned kernels for any rows, in memory or as dask arrays of blocks."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.lazy_kernels import lazy_kernel
from dkl.errors import InputError

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import UserRows


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
            For rows that `transform` refuses.

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
        right = left if Z is None else np.asarray(self.transform(Z), np.float64)  # type: ignore[attr-defined]
        return lazy_kernel(_products, left, right) if lazy else _products(left, None if Z is None else right)


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

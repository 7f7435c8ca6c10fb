"""A learned kernel in a run's folder, which needs no training data: read to transform rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.kernel_params import SHARPNESS
from dkl.estimators.base.run_arrays import check_lengths, trained_on
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.linalg.graph.similarity import Similarity
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.stores.run import RunStore


def settings_in(run: RunStore) -> LogDetRunSettings:
    """Return the settings of a run whose configuration has been validated."""
    return LogDetRunSettings(**run.config["settings"])


def check_model(run: RunStore, found: dict[str, NDArray]) -> None:
    """Raise StoreError for arrays that do not fit together, or numbers that are no rows of the data."""
    where = f"{run.path}/model"
    n, p = trained_on(run)[0], len(found["touched"])
    what = "a model whose parts do not fit together"
    check_lengths(run, "model", found, what, where, touched=p, other=p, sample=n, other_sample=n, one=1)
    for name in ("touched", "basis"):
        numbers = found[name]
        if not len(numbers) or numbers[0] < 0 or numbers[-1] >= n or (np.diff(numbers) <= 0).any():
            raise StoreError("not numbers of rows, ascending", where=f"{where}/{name}")
    if not np.isin(found["touched"], found["basis"]).all():
        raise StoreError(what, where=where)


def kept_kernel(settings: LogDetRunSettings, found: dict[str, NDArray]) -> Kernel:
    """Return the kernel of rows."""
    params = settings.kernel_params
    gamma = float(found["kernel_gamma"][0]) if "kernel_gamma" in found else None
    return Kernel(settings.kernel, gamma, params.get("degree", 3), params.get("coef0", 1))


def stored_similarity(settings: LogDetRunSettings, found: dict[str, NDArray], where: str) -> Similarity:
    """Return the graph's similarity, by which unseen rows are means; StoreError for other rows' widths."""
    n, widths = len(found["coordinates"]), found["widths"]
    if widths.shape not in ((1,), (n,)):
        raise StoreError("not the widths of a similarity", where=f"{where}/widths", got=widths.shape)
    return Similarity(widths, max(1, min(settings.n_neighbors, n - 1)), SHARPNESS)


def stored_laplacian(found: dict[str, NDArray], where: str) -> sp.csr_array:
    """Return D - W (n, n) of the graph; StoreError for a damaged one."""
    n = len(found["coordinates"])
    try:
        parts = (found["laplacian"], found["laplacian_indices"], found["laplacian_indptr"])
        laplacian = sp.csr_array(parts, shape=(n, n))
        laplacian.check_format(full_check=True)
    except (KeyError, ValueError, OverflowError, IndexError) as error:
        raise StoreError("a damaged graph", where=where, got=error) from error
    return laplacian

"""`dkl warmup`: small fits of every learner, for which Numba compiles all that later fits load from its cache."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dkl.errors import DiskError
from dkl.runs.interrupt import echo

if TYPE_CHECKING:
    from dkl.linalg.late_functions import LateFunction

REMEDY = "set NUMBA_CACHE_DIR to a folder that this user can write to"


def warm_up() -> None:
    """Fit every learner on made-up rows, print what was compiled for each, and where Numba keeps it.

    Raises DiskError where it can keep nothing.
    """
    try:
        from dkl.estimators.warmup import warmup_fits
        from dkl.linalg.late_functions import compiles

        cache = _cache_folder()
    except RuntimeError as error:  # Numba's, of a decorated function
        raise DiskError("no folder for compiled code can be written", got=str(error), remedy=REMEDY) from error
    kept = cache.parent.parent if cache.name == "__pycache__" else cache.parent
    wanted = os.environ.get("NUMBA_CACHE_DIR")
    if wanted and not kept.is_relative_to(Path(wanted).absolute()):
        raise DiskError("compiled code cannot be kept there", where=f"NUMBA_CACHE_DIR {wanted}", remedy=REMEDY)
    total, where = 0, ", by folders __pycache__" if cache.name == "__pycache__" else ""
    for name, fits in warmup_fits().items():
        found: list[str] = []
        start = time.process_time()
        with compiles(found.append), warnings.catch_warnings():
            # Fits of a few rows warn of much that does not matter here.
            warnings.simplefilter("ignore")
            for model, rows, given in fits:
                model.fit(rows, **given)
                for verb in ("predict", "transform"):
                    if hasattr(model, verb):
                        getattr(model, verb)(rows)
        total += len(found)
        echo(f"  {name:<28}{len(found):>4} functions compiled{time.process_time() - start:>8.1f} s of a processor")
    echo(f"{total:,} functions compiled, the others were there already; kept in {kept}{where}")


def _cache_folder() -> Path:
    """Return the folder in which Numba keeps compiled functions of `dkl.linalg`; RuntimeError if it can write to none."""
    from dkl.linalg.lasso import subtract_rows

    return Path(cast("LateFunction", subtract_rows).resolve().stats.cache_path)

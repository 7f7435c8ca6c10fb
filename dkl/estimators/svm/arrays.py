"""Declaration of a classifier run's arrays. A machine separates two classes, or one from the rest."""

from __future__ import annotations

from dkl.estimators.base.declared_points import declared_points
from dkl.estimators.base.standardize_setting import COLUMN_ARRAYS
from dkl.estimators.base.stored_history import CERTIFICATE, ITERATION, declared_history
from dkl.stores.checkpoint_folder import vectors_of
from dkl.stores.kernel_tiles import TILES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray

NUMBER = ("float64",)

ALPHAS = Arrays(vectors_of("alphas", "alphas", "All arrays of the machines that are under way or have ended."))

ARRAYS = Arrays(
    *COLUMN_ARRAYS,
    *ALPHAS,
    StoredArray("model/support", ("support",), INTEGERS, "Rows of the data with a coefficient in any machine."),
    StoredArray("model/coefficients", ("machine", "support"), NUMBER, "y alpha."),
    StoredArray("model/intercepts", ("machine",), NUMBER, "What is added to the decision value."),
    StoredArray("model/kernel_weights", ("machine", "kernel"), NUMBER, "Shares of the kernels that are combined."),
    StoredArray("model/gammas", ("kernel",), (*NUMBER, "int64"), "The kernels' gamma."),
    *declared_points("model", "support", "The support vectors"),
    StoredArray(
        "held_out/support",
        ("held_support",),
        INTEGERS,
        "Quality: rows of the data with a coefficient in any machine without the held-out rows.",
        optional=True,
    ),
    StoredArray("held_out/coefficients", ("machine", "held_support"), NUMBER, "y alpha of those.", optional=True),
    StoredArray("held_out/intercepts", ("machine",), NUMBER, "Their intercepts.", optional=True),
    StoredArray("held_out/gaps", ("machine",), NUMBER, "Their gaps.", optional=True),
    *declared_history(
        {
            "machine": "Of the solver's checks: the machine.",
            **ITERATION,
            "products": "Of the checks: products with the kernel matrix so far.",
        },
        CERTIFICATE,
    ),
    TILES,
    files={
        "alphas/alphas-*/MANIFEST.json": "A checkpoint of the machines, each as its result, or as the state that its solver "
        "resumes from: numbers, rows of the history, and the names and shapes of its arrays."
    },
)

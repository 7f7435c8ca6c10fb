"""Declaration of a classifier run's arrays. A machine separates two classes, or one from the rest."""

from __future__ import annotations

from dkl.estimators.common.declared_points import declared_points
from dkl.estimators.common.standardize_setting import COLUMN_ARRAYS
from dkl.estimators.common.stored_history import CERTIFICATE, ITERATION, declared_history
from dkl.stores.kept_states import KeptStates
from dkl.stores.kernel_tiles import TILES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

NUMBER = ("float64",)

ALPHAS = Arrays(
    StoredArray(
        "alphas/alphas-*/alphas",
        ("coefficient",),
        NUMBER,
        "Coefficients alpha of the machines that have ended, one machine after the other.",
        optional=True,
    ),
    StoredArray(
        "alphas/alphas-*/machines",
        ("machine", "fact"),
        INTEGERS,
        "Of each machine that is begun: its number, how many coefficients of it are kept, whether it has ended (1).",
        optional=True,
    ),
    StoredArray(
        "alphas/alphas-*/vectors",
        ("entry",),
        NUMBER,
        "What else is kept of them, one after the other: the state that a machine's solver resumes from, shares of the "
        "kernels. The manifest says what is whose; row numbers are among them.",
        optional=True,
    ),
)

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
        "alphas/alphas-*/MANIFEST.json": "A state of the machines: its arrays; of each machine its numbers, rows of the "
        "history and the names and lengths of its vectors. One without these has coefficients alone, for machines to "
        "begin at: it is of an earlier version."
    },
)


def states_of(run: RunStore) -> KeptStates:
    """Return the store of the machines that are under way."""
    return KeptStates(run.path / "alphas", ALPHAS, "alphas", "the machines")
